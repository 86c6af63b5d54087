import os
import re
from pathlib import Path

import pytest

from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import MAX_WORKFLOW_CHARS, SOURCE_PATTERN, workflow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace" / ".agents" / "workflows"
    folder.mkdir(parents=True)
    return folder


async def instructions(folder: Path, source: str = "ci") -> str:
    return (await workflow(Workspace(folder.parents[1]), source)).text


async def test_the_owners_instructions_are_taken_as_they_are_now(folder: Path) -> None:
    for text in ("Say which tests broke.", "Say {who} broke $them."):
        (folder / "ci.md").write_text(f"\n{text}\n")

        assert await instructions(folder) == text


@pytest.mark.parametrize("content", [None, b"", b" \n\t\n"])
async def test_without_instructions_there_are_built_in_ones(folder: Path, content: bytes | None) -> None:
    if content is not None:
        (folder / "ci.md").write_bytes(content)

    assert await instructions(folder) == (
        "Something happened at ci. Tell the user what matters about it, briefly; if nothing does, answer exactly "
        "`nothing to report`."
    )


async def test_a_file_that_is_too_long_is_cut_and_says_so(folder: Path) -> None:
    (folder / "ci.md").write_text("ä" * MAX_WORKFLOW_CHARS + "the end")

    text = await instructions(folder)

    assert text.count("ä") == MAX_WORKFLOW_CHARS
    assert "the end" not in text
    assert text.endswith("[.agents/workflows/ci.md is cut here: only its first 10,000 characters are shown.]")


async def test_a_link_out_of_the_workspace_is_not_followed_and_the_text_says_so(folder: Path) -> None:
    secret = folder.parents[2] / "secret"
    secret.write_text("hunter2")
    (folder / "ci.md").symlink_to(secret)

    text = await instructions(folder)

    assert "hunter2" not in text
    assert text.startswith("Something happened at ci.")
    assert "[.agents/workflows/ci.md could not be read: " in text


async def test_a_pipe_keeps_nobody_waiting(folder: Path) -> None:
    os.mkfifo(folder / "ci.md")

    assert "could not be read" in await instructions(folder)


async def test_what_is_no_text_does_no_harm(folder: Path) -> None:
    (folder / "ci.md").write_bytes(b"Be brief. \xff\xfe")

    assert (await instructions(folder)).startswith("Be brief. ")


@pytest.mark.parametrize("source", ["ci", "0", "home-assistant", "my.shop_2", "a..b", "a" * 64])
def test_what_a_source_may_be_called(source: str) -> None:
    assert re.fullmatch(SOURCE_PATTERN, source)


@pytest.mark.parametrize("source", ["", ".", "..", "../ci", "a/b", "A", "ä", "ci\n", "-ci", ".ci", "a b", "a" * 65])
def test_what_a_source_may_not_be_called(source: str) -> None:
    assert not re.fullmatch(SOURCE_PATTERN, source)
