import json
import os
from pathlib import Path

import pytest

from gateway.config.environment import Environment
from tests.cli.conftest import Supaclaw
from tests.cli.test_skills import workspace  # noqa: F401
from tests.workspace.tool_files.writing import put, tool_md


@pytest.fixture
def root(workspace: Path) -> Path:  # noqa: F811
    return workspace


def test_a_file_is_listed_shown_confirmed_and_switched_off(supaclaw: Supaclaw, root: Path) -> None:
    assert "No tool files" in supaclaw("tool-files").out
    folder = put(root)
    put(root, "broken", "no head")
    rows = {row["name"]: row for row in supaclaw("tool-files", "list", "--json").json}
    assert (rows["weather"]["state"], rows["broken"]["state"]) == ("new", "broken")
    assert rows["broken"]["problem"].startswith("A TOOL.md must begin with front matter between two --- lines: ")
    shown = supaclaw("tool-files", "show", "weather").out
    assert "type http_api https://api.example.org/v1" in shown
    assert "weather_forget: DELETE /reports (irreversible)" in shown
    refused = supaclaw("tool-files", "enable", "weather")
    assert (refused.code, "add --yes" in refused.err) == (1, True)
    assert supaclaw("tool-files", "enable", "weather", "--yes").out == "weather 1.0.0 is on\n"
    assert supaclaw("skills").out.startswith("No skills")
    (folder / "TOOL.md").write_text(tool_md(body="Changed."))
    assert "-Ask it.\n+Changed." in supaclaw("tool-files", "show", "weather").out
    assert supaclaw("tool-files", "disable", "weather").out == "weather 1.0.0 is changed\n"


def test_hidden_characters_take_a_word_of_their_own(supaclaw: Supaclaw, root: Path) -> None:
    put(root, text=tool_md(body="Ask it\u200b."))
    refused = supaclaw("tool-files", "enable", "weather", "--yes")
    assert (refused.code, "severe findings" in refused.err) == (1, True)
    assert supaclaw("tool-files", "enable", "weather", "--yes", "--despite-findings").code == 0


def test_a_document_that_cannot_be_fetched_is_told_in_one_line(supaclaw: Supaclaw, root: Path) -> None:
    put(root, "pets", tool_md("pets", "openapi: http://127.0.0.1:8099/openapi.json\n"))
    refused = supaclaw("tool-files", "enable", "pets", "--yes")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "net.private_allow" in refused.err


def test_a_document_is_fetched_after_its_link_was_shown(supaclaw: Supaclaw, root: Path) -> None:
    put(root, "pets", tool_md("pets", "openapi: http://127.0.0.1:8099/openapi.json\n"))
    refused = supaclaw("tool-files", "enable", "pets")
    assert (refused.code, "add --yes" in refused.err, "Not connected" in refused.err) == (1, True, False)


def test_a_known_server_is_added_once(supaclaw: Supaclaw, root: Path) -> None:
    done = supaclaw("tools", "add", "web-fetch")
    assert (done.code, "--profile scrapling" in done.out) == (0, True)
    written = json.loads(Environment.read(os.environ).config.read_text())
    assert written["tools"]["mcp"] == {"web-fetch": {"url": "http://scrapling:8000/mcp"}}
    assert written["net"]["private_allow"] == ["scrapling:8000"]
    again = supaclaw("tools", "add", "web-fetch")
    assert (again.code, "already exists" in again.err) == (1, True)
    assert supaclaw("tools", "add", "nothing").code != 0
    assert supaclaw("config", "validate").code == 0
    assert root.exists()
