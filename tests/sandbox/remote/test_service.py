"""Commands in the service of compose: what they are promised on bare metal holds there, too."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.sandbox.command import Tier
from gateway.sandbox.remote.client import RemoteWorkshop
from tests.sandbox.remote.services import needs_containers, service
from tests.tools.test_exec import Desk

pytestmark = needs_containers


@pytest.fixture(params=["", "without={Tier.NAMESPACES}", "landlock=1, without={Tier.NAMESPACES}", "landlock=0, without={Tier.NAMESPACES}"])
async def desk(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    for name in ("sessions", "memory", "notes"):
        (tmp_path / "workspace" / name).mkdir(parents=True)
    (tmp_path / "workspace/AGENTS.md").write_text("Be kind.")
    async with service(tmp_path, request.param) as path:
        jail = RemoteWorkshop(tmp_path / "scratch", path=path, admits=lambda peer: peer.user == 0)
        yield Desk(tmp_path / "workspace", jail)
        await jail.close()


async def test_exec_works_through_it(desk: Desk) -> None:
    tier = await desk.workshop.tier()
    print(tier)
    answer = await desk.run("echo hello; echo oops >&2; echo x > notes/new.md; mkdir top; chmod +x notes/new.md; id -u; pwd; ps ax 2>&1 | head; exit 3")
    print(answer)
    assert answer["exit_code"] == 3
