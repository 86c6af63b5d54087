import asyncio
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Database
from gateway.store.files import contents
from gateway.store.people import principals
from gateway.workspace.template import RELEASED, TEMPLATE, fill_new_workspace
from tests.cli.conftest import Supaclaw

OWN = "- Ada likes tables.\n"
BEFORE = (TEMPLATE / RELEASED / "1" / "TOOLS.md").read_text()


@pytest.fixture
def tools(place: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TOOLS.md of the version before, in which somebody wrote a line."""
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    root = place / "data" / "workspace"
    fill_new_workspace(root)
    (root / "TOOLS.md").write_text(BEFORE + OWN)
    return root / "TOOLS.md"


def test_a_file_is_shown_and_merged(supaclaw: Supaclaw, tools: Path) -> None:
    shown = supaclaw("workspace", "diff").out
    assert shown.startswith("# TOOLS.md: supaclaw workspace merge TOOLS.md\n--- mine/TOOLS.md\n+++ template/TOOLS.md\n")
    assert any(finding["text"] == "this version has a newer TOOLS.md" for finding in findings(supaclaw))

    assert supaclaw("workspace", "merge", "TOOLS.md").out == "TOOLS.md is merged\n"

    assert tools.read_text() == (TEMPLATE / "TOOLS.md").read_text() + OWN
    assert supaclaw("workspace", "diff").out == "nothing to merge: every file is up to date\n"
    assert supaclaw("workspace", "merge", "TOOLS.md").code == 1


def test_lines_that_both_changed_are_left_alone(supaclaw: Supaclaw, tools: Path) -> None:
    lines = BEFORE.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith("- "))
    mine = "".join([*lines[: last - 1], "- My own rule.\n", *lines[last + 1 :]])
    tools.write_text(mine)

    assert "edit it by hand: same lines changed" in supaclaw("workspace", "diff").out
    done = supaclaw("workspace", "merge", "TOOLS.md")

    assert (done.code, "edit it by hand" in done.err) == (1, True)
    assert tools.read_text() == mine


def findings(supaclaw: Supaclaw) -> list[dict[str, str]]:
    found = supaclaw("doctor", "--json").json
    assert isinstance(found, list)
    return found


def test_merging_vouches_for_nothing(supaclaw: Supaclaw, tools: Path, dsn: str) -> None:
    """What others wrote into the file is in the merged one, too."""

    async def label(text: str, note: Label | None = None) -> Label | None:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            owner = await principals.owner(conn)
            id = owner.id if owner else await principals.add(conn, Role.OWNER, "Ada", [])
            if note is not None:
                await contents.note(conn, id, sha256(text.encode()).hexdigest(), note, "agent")
            return await contents.label(conn, id, sha256(text.encode()).hexdigest())

    asyncio.run(label(BEFORE + OWN, Label.UNTRUSTED))
    assert supaclaw("workspace", "merge", "TOOLS.md").code == 0
    assert asyncio.run(label(tools.read_text())) is Label.UNTRUSTED
