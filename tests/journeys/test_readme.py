"""The README's own commands, as written, by somebody who has nothing but this repository."""

import asyncio
import os
import re
import shutil
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.process import ROOT

SECONDS = 600.0
"""A clone is installed and compiled, which takes a minute on a slow machine."""
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    """Each command of the README's shell blocks but for those with Docker; this folder is the repository."""
    for block in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        if "docker" not in block:
            yield from block.replace("REPOSITORY", str(ROOT)).splitlines()


def environment(home: Path) -> dict[str, str]:
    """An empty home, with uv and its cache."""
    uv = next(path for path in (shutil.which("uv"), ROOT / ".uv" / "bin" / "uv") if path)
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_")) or name == "LANG"
    }
    programs = Path(uv).parent, Path(sys.executable).resolve().parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cache = os.environ.get("UV_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "uv"
    return kept | {
        "HOME": str(home),
        "PATH": os.pathsep.join([f"{home}/.local/bin", *map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"]),
        "UV_CACHE_DIR": str(cache),
        "SUPACLAW_PORT": str(port),
        "OLLAMA_HOST": "127.0.0.1:1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


def script() -> str:
    """The commands, and what somebody who types them does: wait until it's ready, and stop it in the end."""
    lines = []
    for command in commands():
        if command.startswith("make run"):
            lines += [f"{command.partition('#')[0]} >run.log 2>&1 &"]
            lines += ["until grep -q ^ready run.log; do kill -0 %1; sleep 0.1; done; cat run.log"]
        else:
            lines += [command]
    return "\n".join(["set -e", "trap 'supaclaw down' EXIT", *lines])


@pytest.mark.skipif("CI" not in os.environ, reason="installs everything, which takes a minute of two cores: .ci/run")
async def test_its_commands_work_as_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    run = await asyncio.create_subprocess_exec(
        "bash", "-c", script(), cwd=home, env=environment(home), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    told = (await asyncio.wait_for(run.communicate(), SECONDS))[0].decode()
    assert run.returncode == 0, told
    assert "No model is connected yet" in told, "supaclaw chat"
    assert re.search(r"^claw_[\w-]{43}$", told, re.MULTILINE), "supaclaw token create"
    assert told.endswith("stopped\n")
