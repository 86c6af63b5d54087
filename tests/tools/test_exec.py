"""Real work in the jail, and what goes wrong there."""

import asyncio
import json
import os
from dataclasses import replace
from hashlib import sha256

import pytest

from gateway.domain.principals import Label
from gateway.tools import Services
from gateway.tools import exec as exec_tool
from gateway.tools.exec import FLOOD_BYTES, PAGE_CHARS
from gateway.workspace.files import index
from gateway.workspace.files.disk import FileState
from gateway.workspace.files.tree import Workspace
from tests.fakes.caller import CALLER
from tests.fakes.eventually import eventually
from tests.sandbox.tiers import confines
from tests.tools.desk import Desk

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")


async def test_a_command_answers_with_its_output_its_code_and_what_it_changed(desk: Desk) -> None:
    (desk.root / "notes/old.md").write_text("old")
    (desk.root / "notes/gone.md").write_text("gone")
    answer = await desk.run(
        "echo hello; echo oops >&2; echo x >> old.md; rm gone.md; touch new.md; exit 3", folder="notes"
    )
    assert answer == {
        "exit_code": 3,
        "output": "hello\noops\n",
        "files": {"new": ["notes/new.md"], "changed": ["notes/old.md"], "deleted": ["notes/gone.md"]},
    }


async def test_a_progress_bar_is_its_last_state(desk: Desk) -> None:
    answer = await desk.run(r"for i in $(seq 5000); do printf '\r\033[2K%d%%' $((i/50)); done; echo")
    assert answer["output"] == "100%\n"


async def test_a_small_project_with_tests_is_built(desk: Desk) -> None:
    await desk.run(
        "mkdir -p sums tests && echo 'def add(a, b): return a + b' > sums/__init__.py && "
        "printf 'import unittest, sums\\nclass T(unittest.TestCase):\\n    def test_add(self): "
        "self.assertEqual(sums.add(1, 2), 3)\\n' > tests/test_sums.py && touch tests/__init__.py"
    )
    answer = await desk.run("python3 -B -m unittest 2>&1 | tail -1 && chmod +x sums/__init__.py && ls -l sums")
    assert answer["exit_code"] == 0
    assert answer["output"].startswith("OK\n")
    broken = await desk.run("sed -i 's/+ b/- b - 0/' sums/__init__.py; python3 -B -m unittest")
    assert (broken["exit_code"], broken["files"]["changed"]) == (1, ["sums/__init__.py"])


async def test_a_thousand_files_are_processed(desk: Desk) -> None:
    (desk.root / "in").mkdir()
    for number in range(1000):
        (desk.root / f"in/{number:04}.txt").write_text(f"{number}\n")
    answer = await desk.run(
        "mkdir out; for f in in/*; do sed s/^/n=/ $f > out/${f#in/}; done; cat out/* | wc -l", seconds=300
    )
    assert (answer["exit_code"], answer["output"]) == (0, "1000\n")
    assert len(answer["files"]["new"]) == 31
    assert answer["files"]["new"][-1] == "and 970 more"


async def test_journals_and_instructions_are_read_only(desk: Desk) -> None:
    (desk.root / "sessions/a.md").write_text("said")
    answer = await desk.run(
        "cat AGENTS.md sessions/a.md; for f in AGENTS.md sessions/a.md sessions/b memory/c; do echo evil > $f; done;"
        "rm -f AGENTS.md; mv AGENTS.md x; rm -r sessions; chmod 777 AGENTS.md; touch -d 2001-01-01 AGENTS.md"
    )
    assert answer["output"].startswith("Be kind.said")
    assert "files" not in answer
    assert (desk.root / "AGENTS.md").read_text() == "Be kind."
    assert [each.name for each in (desk.root / "sessions").iterdir()] == ["a.md"]


async def test_a_conversation_that_has_read_nothing_of_others_does_not_see_it(desk: Desk) -> None:
    (desk.root / "uploads/letter.txt").write_text("evil")
    (desk.root / "notes/page.md").write_text("their words")
    (desk.root / "notes/mine.md").write_text("mine")
    before = await desk.outcome("true")
    desk.labels.others[sha256(b"their words").hexdigest()] = Label.UNTRUSTED
    seen = await desk.outcome("cat uploads/* notes/*; ls uploads")
    assert "mine" in json.loads(seen.text)["output"]
    assert "their words" not in seen.text
    assert (before.label, seen.label, desk.labels.doubt) == (Label.OWNER, Label.OWNER, 0)

    desk.caller = replace(CALLER, label=Label.UNTRUSTED)
    desk.toolbox = desk.toolbox_of(Label.UNTRUSTED)
    seen = await desk.outcome("cat uploads/* notes/page.md; cp uploads/letter.txt notes/copy.txt")
    assert json.loads(seen.text)["output"] == "eviltheir words"
    assert seen.label is Label.UNTRUSTED
    desk.caller = CALLER
    assert json.loads((await desk.outcome("cat notes/copy.txt")).text)["exit_code"] == 1


MAPPED = """
import mmap
with open("notes/mine.md", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
    mapping[:4] = b"evil"
"""


async def taint(desk: Desk, command: str) -> None:
    """Run it as a conversation that has read others' words."""
    desk.caller, desk.toolbox = replace(CALLER, label=Label.UNTRUSTED), desk.toolbox_of(Label.UNTRUSTED)
    assert (await desk.run(command))["exit_code"] == 0
    desk.caller = CALLER


@pytest.mark.parametrize("notes_mappings", [True, False])
async def test_what_others_write_through_a_mapping_has_their_label(
    desk: Desk, notes_mappings: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no state tells of it either."""
    if notes_mappings is False:
        monkeypatch.setattr(index, "notes_mappings", lambda _: False)
        monkeypatch.setattr(FileState, "of", lambda status: FileState(os.fsencode(str(status.st_ino)).ljust(36)[:36]))
    (desk.root / "notes/mine.md").write_text("mine, all of it")
    await desk.run("true")
    await taint(desk, f"python3 -c '{MAPPED}'")
    assert desk.labels.others[sha256(b"evil, all of it").hexdigest()] is Label.UNTRUSTED
    seen = await desk.outcome("cat notes/mine.md || true")
    assert ("evil" in seen.text, seen.label) == (False, Label.OWNER)


@pytest.mark.parametrize(
    "hiding",
    [
        "f='notes/a\\b'; echo evil > \"$f\"",
        "truncate -s 2G notes/image; echo evil >> notes/image",
        """python3 -c 'import os
os.chdir("notes")
for _ in range(620):
    os.mkdir("d")
    os.chdir("d")
open("f", "w").write("evil")'""",
    ],
)
async def test_others_words_hide_nowhere(desk: Desk, hiding: str) -> None:
    """In a name that no tool takes, behind a hole, or too deep."""
    await taint(desk, hiding)
    seen = await desk.outcome("grep -a -r -h -o evil notes || true")
    assert "evil" not in json.loads(seen.text)["output"] or seen.label is Label.UNTRUSTED


async def test_who_has_read_others_words_asks_first_and_is_shown_the_command(desk: Desk) -> None:
    (desk.root / "run.sh").write_text("echo harmless")
    desk.caller = replace(CALLER, label=Label.UNTRUSTED)
    assert (await desk.run("sh run.sh"))["error"] == "not_allowed"
    shown = await desk.commands.change("sh run.sh", ".")
    assert "sh run.sh" in shown.preview
    (desk.root / "run.sh").write_text("rm -r *")
    assert (await desk.commands.change("sh run.sh", ".")).base != shown.base


async def test_what_cannot_run_says_so_and_the_next_one_runs(desk: Desk) -> None:
    assert (await desk.run("no-such-program"))["exit_code"] == 127
    assert (await desk.run("ls", folder="no/such/folder"))["error"] == "not_started"
    for folder in ("/etc", "../.."):
        assert (await desk.run("ls", folder=folder))["error"] == "bad_path"
    assert (await desk.run("read -r line < /dev/tty || echo no terminal"))["output"].endswith("no terminal\n")
    assert (await desk.run("cat; echo nothing to read"))["output"] == "nothing to read\n"
    assert (await desk.run("printf '\\377\\376ok'"))["output"] == "\ufffd\ufffdok"
    assert (await desk.run(f"echo {'x' * 60_000}"))["error"] == "invalid_arguments"
    assert (await desk.run("echo a\0b"))["error"] == "not_started"
    assert (await desk.run("seq 1 200000 | xargs /bin/echo | wc -l"))["exit_code"] == 0
    assert (await desk.run("echo still here"))["output"] == "still here\n"


async def test_a_command_that_waits_is_ended(desk: Desk) -> None:
    answer = await desk.run("(setsid sleep 600 &) ; nohup sleep 600", seconds=1)
    assert answer["exit_code"] is None
    assert "longer than 1 s" in answer["ended"]


async def test_long_output_comes_in_pages_and_endless_output_is_ended(desk: Desk) -> None:
    answer = await desk.run("seq 1 100000")
    assert answer["output"].startswith("1\n2\n")
    assert answer["output"].endswith("99999\n100000\n")
    assert len(answer["output"]) < PAGE_CHARS + 100
    assert (desk.root / answer["path"]).read_text().splitlines()[41] == "42"
    endless = await desk.run("yes")
    assert (
        endless["ended"] == f"It wrote more than {FLOOD_BYTES // 1024**2} MB and was ended; send its output to a file."
    )
    assert (desk.root / endless["path"]).stat().st_size < 3 * 1024**2


async def test_a_fork_bomb_and_a_hog_are_ended(desk: Desk) -> None:
    bomb = await desk.run("bomb() { bomb | bomb & }; bomb; sleep 60", seconds=5)
    assert bomb["exit_code"] is None
    hog = await desk.run(
        "python3 -c 'x = bytearray(3 << 30)'; python3 -c \"b = [bytearray(9 << 27) for _ in range(9)]\""
    )
    assert "MemoryError" in hog["output"]
    assert (await desk.run("echo alive"))["output"] == "alive\n"


async def test_a_stopped_turn_takes_its_command_along(desk: Desk) -> None:
    running = asyncio.create_task(desk.run("while :; do date +%N > beat; sleep 0.02; done", seconds=600))
    await eventually((desk.root / "beat").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.3)
    last = (desk.root / "beat").read_bytes()
    await asyncio.sleep(0.2)
    assert (desk.root / "beat").read_bytes() == last
    assert desk.commands._open == []


async def test_off_means_off(desk: Desk) -> None:
    desk.mode = "off"
    assert (await desk.run("true"))["error"] == "off"
    assert exec_tool.tools(Services(Workspace(desk.root), commands=desk.commands)) == ()
    assert exec_tool.tools(Services(Workspace(desk.root))) == ()
