"""The tutorials, run from their own text against a gateway without a model."""

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, STDOUT

import pytest

from tests.journeys.conftest import embedded  # noqa: F401
from tests.journeys.process import ROOT, GatewayProcess, configured

pytestmark = pytest.mark.thorough

PAGE = (ROOT / "docs" / "tutorials.md").read_text("utf-8")
TUTORIALS = dict(re.findall(r"^## (.+?)$.*?^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
SHOWN = {
    "Your first reminder": "water",
    "A morning briefing": "RE1 at 7:52",
    "A research tree": "Compare three libraries",
    "A tool of your own, as a file": "dice",
    "An MCP server": "http://127.0.0.1:9/mcp",
    "Moving from OpenClaw, or from ChatGPT": "Tea, not coffee",
}
"""A text that each tutorial shows at its end."""


async def test_each_works_as_written(embedded: GatewayProcess) -> None:  # noqa: F811
    assert TUTORIALS.keys() == SHOWN.keys()
    embedded.configure(configured())
    await embedded.start()
    (embedded.home / "examples").symlink_to(ROOT / "examples")
    (programs := embedded.home / "bin").mkdir()
    (programs / "supaclaw").symlink_to(ROOT / ".venv" / "bin" / "supaclaw")
    places = {"SUPACLAW_DATA": embedded.data, "SUPACLAW_CONFIG": embedded.home / "config.json"}
    environ = {
        **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
        **{name: str(path) for name, path in places.items()},
        "SUPACLAW_WORKSPACE": str(embedded.workspace),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(embedded.home),
    }
    for title, commands in TUTORIALS.items():
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-e", "-c", commands), cwd=embedded.home, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
        )
        told = (await asyncio.wait_for(shell.communicate(), 120))[0].decode()
        assert (shell.returncode, SHOWN[title] in told) == (0, True), f"{title}:\n{told}"
