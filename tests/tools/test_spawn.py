"""Long-running processes: they outlive a turn, and nothing else."""

import asyncio
import json
import re
from dataclasses import replace
from uuid import UUID

import pytest

from gateway.agent.exec.processes import KEPT_BYTES, MAX_RUNNING, BoundedOutput
from gateway.domain.ids import SessionId, TaskId
from gateway.domain.principals import Label
from gateway.tools import Services
from gateway.tools import spawn as spawn_tool
from tests.fakes.eventually import eventually
from tests.sandbox.tiers import confines
from tests.tools.desk import Desk

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")

BEAT = "while :; do date +%N > beat; sleep 0.02; done"
LOCKED = "<!-- CORE:LOCK -->\nrules\n<!-- /CORE:LOCK -->\n"


async def beats(desk: Desk) -> bool:
    """Whether the loop of `BEAT` still runs."""
    last = (desk.root / "beat").read_bytes()
    await asyncio.sleep(0.3)
    return (desk.root / "beat").read_bytes() != last


async def test_a_process_goes_on_between_turns_and_is_read_and_typed_into(desk: Desk) -> None:
    started = await desk.spawn("start", command="echo ready; while read -r line; do echo got:$line; done; echo bye")
    process = started["process"]
    assert started["running"] is True
    assert started["output"] or await desk.until(process, lambda seen: seen["output"] == "ready\n")
    await desk.spawn("write", process=process, input="  two words ", wait=0)
    seen = await desk.until(process, lambda seen: "got:two words\n" in seen["output"])
    assert seen["running"] is True
    await desk.spawn("write", process=process, end_input=True, wait=0)
    seen = await desk.until(process, lambda seen: not seen["running"])
    assert (seen["exit_code"], seen["output"][-4:]) == (0, "bye\n")
    again = await desk.spawn("poll", process=process, since=0)
    assert again["output"] == "ready\ngot:two words\nbye\n"
    assert (await desk.spawn("write", process=process, input="x"))["error"] == "no_input"


async def test_it_tells_what_it_changed_and_lists_what_runs(desk: Desk) -> None:
    first = await desk.spawn("start", command="echo x > notes/new.md", wait=30)
    second = await desk.spawn("start", command=BEAT, wait=0)
    seen = await desk.until(first["process"], lambda seen: not seen["running"])
    assert "notes/new.md" in seen["files"]["new"]
    listed = (await desk.spawn("list"))["processes"]
    assert [(each["process"], each["running"]) for each in listed] == [
        (first["process"], False),
        (second["process"], True),
    ]


async def test_kill_ends_the_whole_tree(desk: Desk) -> None:
    started = await desk.spawn("start", command=f"(setsid sh -c '{BEAT}' &) ; trap '' TERM; sleep 600")
    await eventually((desk.root / "beat").exists)
    killed = await desk.spawn("kill", process=started["process"])
    assert (killed["running"], killed["ended"]) == (False, "It was killed, with all it had started.")
    assert not await beats(desk)
    assert desk.commands._open == []


async def test_its_time_ends_it(desk: Desk) -> None:
    started = await desk.spawn("start", command="sleep 600", seconds=1, wait=0)
    seen = await desk.until(started["process"], lambda seen: not seen["running"])
    assert seen["ended"].startswith("It took longer than 1 s")


async def test_stop_ends_those_of_its_session_and_the_gateway_all(desk: Desk) -> None:
    await desk.spawn("start", command=BEAT, wait=0)
    await eventually((desk.root / "beat").exists)
    desk.caller = replace(desk.caller, session=SessionId(UUID(int=9)))
    other = await desk.spawn("start", command="sleep 600", wait=0)
    assert (desk.processes.count(SessionId(UUID(int=2))), desk.processes.count(SessionId(UUID(int=9)))) == (1, 1)
    desk.processes.kill_all(SessionId(UUID(int=2)))
    await eventually(lambda: not desk.processes.count(SessionId(UUID(int=2))))
    assert not await beats(desk)
    assert (await desk.spawn("poll", process=other["process"], wait=0))["running"] is True
    await desk.processes.close()
    assert (await desk.spawn("poll", process=other["process"], wait=0))["running"] is False
    assert desk.labels.doubt == 0


async def test_after_a_restart_a_process_is_told_as_ended(desk: Desk) -> None:
    answer = await desk.spawn("poll", process="00000000-7")
    assert answer["running"] is False
    assert "restart" in answer["ended"]
    for action in ("write", "kill"):
        assert (await desk.spawn(action, process="00000000-7"))["running"] is False


async def test_only_a_few_run_at_once(desk: Desk) -> None:
    for _ in range(MAX_RUNNING):
        assert (await desk.spawn("start", command="sleep 600", wait=0))["running"]
    assert (await desk.spawn("start", command="sleep 600"))["error"] == "too_many"
    one, *_ = (await desk.spawn("list"))["processes"]
    await desk.spawn("kill", process=one["process"])
    assert (await desk.spawn("start", command="sleep 600", wait=0))["running"]


async def test_endless_output_stays_bounded_and_others_work_meanwhile(desk: Desk) -> None:
    started = await desk.spawn("start", command="yes", wait=0)
    await eventually(lambda: desk.processes.get(started["process"]).output.size > 4 * KEPT_BYTES)
    seen = await desk.spawn("poll", process=started["process"], since=0)
    assert len(seen["output"]) <= spawn_tool.PAGE_BYTES
    assert "no longer kept" in seen["dropped"]
    assert seen["more"] > 0
    assert (await desk.run("echo alive"))["output"] == "alive\n"


CURSES = """
import curses

def main(screen):
    at = 0
    while True:
        screen.erase()
        screen.border()
        for place, name in enumerate(("apples", "pears", "plums")):
            screen.addstr(1 + place, 2, ("> " if place == at else "  ") + name)
        screen.addstr(5, 2, f"{screen.getmaxyx()}")
        match screen.getch():
            case curses.KEY_DOWN:
                at += 1
            case curses.KEY_UP:
                at -= 1
            case 10:
                return at

raise SystemExit(curses.wrapper(main))
"""


async def until_shown(desk: Desk, process: str, end: str) -> str:
    """Poll until the screen ends like this; returns all of it."""
    screen = ""
    for _ in range(120):
        if (screen := (await desk.spawn("poll", process=process, wait=1))["screen"]).endswith(end):
            return screen
    raise AssertionError(screen)


async def test_a_prompt_is_used_like_a_person_does(desk: Desk) -> None:
    process = (await desk.spawn("start", command="python3 -q", pty=True))["process"]
    assert await until_shown(desk, process, ">>>") == ">>>"
    await desk.spawn("write", process=process, input="6 * 7")
    assert await until_shown(desk, process, "42\n>>>") == ">>> 6 * 7\n42\n>>>"
    await desk.spawn("write", process=process, input="import getpass, time; print(len(getpass.getpass()))")
    await until_shown(desk, process, "Password:")
    await desk.spawn("write", process=process, input="hush")
    assert "hush" not in await until_shown(desk, process, "4\n>>>")
    await desk.spawn("write", process=process, input="time.sleep(600)")
    await desk.spawn("write", process=process, keys=["ctrl-c"])
    await until_shown(desk, process, "KeyboardInterrupt\n>>>")
    await desk.spawn("write", process=process, keys=["up"])
    assert (await until_shown(desk, process, "time.sleep(600)")).endswith(">>> time.sleep(600)")
    await desk.spawn("write", process=process, keys=["ctrl-c"])
    await desk.spawn("write", process=process, end_input=True)
    assert not (await desk.until_ended(process))["running"]


async def test_a_program_that_fills_the_screen_gets_its_size_and_keys(desk: Desk) -> None:
    (desk.root / "menu.py").write_text(CURSES)
    started = await desk.spawn("start", command="python3 menu.py", pty=True, rows=7, columns=20)
    frame = "┌" + "─" * 18 + "┐\n│ {} apples         │\n│ {} pears          │\n│   plums          │\n"
    foot = f"│{' ' * 18}│\n│ (7, 20)          │\n└{'─' * 18}┘"
    assert await until_shown(desk, started["process"], "┘") == frame.format(">", " ") + foot
    seen = await desk.spawn("write", process=started["process"], input="", keys=["down", "down", "up"])
    assert await until_shown(desk, started["process"], "┘") == frame.format(" ", ">") + foot
    assert seen["process"] == started["process"]
    await desk.spawn("write", process=started["process"])
    assert (await desk.until_ended(started["process"]))["exit_code"] == 1


async def test_a_terminal_that_is_full_says_how_much_it_took(desk: Desk) -> None:
    process = (await desk.spawn("start", command="stty raw -echo; echo ready; sleep 600", pty=True))["process"]
    await until_shown(desk, process, "ready")
    refused = await desk.spawn("write", process=process, input="x" * 20_000)
    took = int(re.search(r"first ([\d,]+) bytes", refused["message"])[1].replace(",", ""))
    assert refused["error"] == "busy"
    assert 1_000 < took < 20_000


async def test_keys_are_for_terminals_and_known_by_name(desk: Desk) -> None:
    piped = (await desk.spawn("start", command="sleep 600", wait=0))["process"]
    assert (await desk.spawn("write", process=piped, keys=["up"]))["error"] == "no_terminal"
    assert (await desk.spawn("write", process=piped, keys=["hyper"]))["error"] == "invalid_arguments"


def test_a_character_that_is_cut_waits_for_its_rest() -> None:
    output = BoundedOutput(0, KEPT_BYTES)
    output.add("aé".encode()[:2])
    assert output.page(0, 100, whole=False) == ("a", 0, 1)
    output.add("é".encode()[1:])
    assert output.page(1, 100, whole=False) == ("é", 0, 3)
    output.add(b"\xc3")
    assert output.page(3, 100, whole=True) == ("\ufffd", 0, 4)
    output.add(b"x" * KEPT_BYTES)
    assert output.page(0, 2, whole=False) == ("xx", 4, 6)


async def test_input_that_nobody_reads_is_refused(desk: Desk) -> None:
    started = await desk.spawn("start", command="sleep 600", wait=0)
    answers = [await desk.spawn("write", process=started["process"], input="x" * 60_000, wait=0) for _ in range(4)]
    assert answers[-1]["error"] == "busy"


async def test_what_cannot_start_says_so(desk: Desk) -> None:
    assert (await desk.spawn("start"))["error"] == "invalid_arguments"
    assert (await desk.spawn("poll"))["error"] == "invalid_arguments"
    missing = await desk.spawn("start", command="no-such-program")
    missing = await desk.until(missing["process"], lambda seen: not seen["running"])
    assert missing["exit_code"] == 127
    assert (await desk.spawn("start", command="echo a\0b", wait=10))["ended"].startswith("ValueError")
    desk.mode = "off"
    assert (await desk.spawn("start", command="ls"))["error"] == "off"
    assert spawn_tool.tools(Services(desk.workspace, processes=desk.processes)) == ()
    assert spawn_tool.tools(Services(desk.workspace)) == ()


class TestLabels:
    async def test_a_clean_one_never_sees_what_others_write_after_its_start(self, desk: Desk) -> None:
        (desk.root / "sessions/a.md").write_text("others said")
        started = await desk.spawn(
            "start", command="cat sessions/*; while :; do cat notes/page.md; sleep 0.05; done", wait=0
        )
        process = started["process"]
        clean = await desk.call("spawn", action="poll", process=process)
        assert clean.label is Label.OWNER
        assert "others said" not in clean.text
        await desk.workspace.write("notes/page.md", "their words", Label.UNTRUSTED)
        await desk.until(process, lambda seen: "their words" in seen["output"])
        assert (await desk.call("spawn", action="poll", process=process)).label is Label.UNTRUSTED
        assert desk.labels.doubt == 1, "what it writes has no label of the owner's"
        await desk.spawn("kill", process=process)
        assert desk.labels.doubt == 0

    async def test_who_has_read_others_words_asks_before_starting_and_typing(self, desk: Desk) -> None:
        mine = await desk.spawn("start", command="cat", wait=0)
        desk.caller = replace(desk.caller, label=Label.UNTRUSTED)
        assert (await desk.spawn("start", command="cat"))["error"] == "not_allowed"
        assert (await desk.spawn("write", process=mine["process"], input="x"))["error"] == "not_allowed"
        assert (await desk.spawn("poll", process=mine["process"]))["running"] is True
        elsewhere = replace(desk.caller, session=SessionId(UUID(int=9)))
        desk.caller, here = elsewhere, desk.caller
        assert (await desk.spawn("kill", process=mine["process"]))["error"] == "not_allowed"
        desk.caller = here
        assert (await desk.spawn("kill", process=mine["process"]))["running"] is False

    async def test_an_approved_input_of_such_a_run_makes_the_process_untrusted(self, desk: Desk) -> None:
        mine = await desk.spawn("start", command="cat", wait=0)
        desk.caller = replace(desk.caller, label=Label.UNTRUSTED)
        desk.toolbox = desk.toolbox_of(Label.UNTRUSTED)  # as after a yes
        await desk.spawn("write", process=mine["process"], input="their words", wait=0)
        desk.caller = replace(desk.caller, label=Label.OWNER)
        seen = await desk.call("spawn", action="poll", process=mine["process"], wait=10)
        assert seen.label is Label.UNTRUSTED

    async def test_a_question_shows_the_command_and_the_input(self, desk: Desk) -> None:
        mine = await desk.spawn("start", command="cat", wait=0)
        [_, tool] = desk.tools
        given = tool.arguments.model_validate({"action": "start", "command": "sh run.sh"})
        shown = await tool.lasting(given, desk.caller)
        assert "sh run.sh" in shown.preview
        given = tool.arguments.model_validate({"action": "write", "process": mine["process"], "input": "rm x"})
        shown = await tool.lasting(given, desk.caller)
        assert "rm x" in shown.preview
        assert "cat" in shown.preview


async def test_locked_text_is_put_back_while_a_process_lives(desk: Desk) -> None:
    (desk.root / "notes/rules.md").write_text(LOCKED)
    started = await desk.spawn(
        "start", command=f"mv notes away; mkdir notes; echo evil > notes/rules.md; {BEAT}", wait=0
    )
    await eventually((desk.root / "beat").exists)
    await desk.locks.check()
    assert (desk.root / "notes/rules.md").read_text() == LOCKED
    (desk.root / "notes/rules.md").write_text("an editor's")
    await desk.spawn("poll", process=started["process"], wait=0)
    assert (desk.root / "notes/rules.md").read_text() == LOCKED
    await desk.spawn("kill", process=started["process"])
    (desk.root / "notes/rules.md").write_text(LOCKED + "the owner's")
    await desk.run("true")
    assert (desk.root / "notes/rules.md").read_text() == LOCKED + "the owner's"
    assert len(desk.told) == 2


async def test_the_same_call_starts_one_process(desk: Desk) -> None:
    desk.caller = replace(desk.caller, task=TaskId(UUID(int=5)))
    await desk.spawn("start", command="sleep 600", wait=0)
    desk.caller = replace(desk.caller, ordinal=desk.caller.ordinal - 1)
    assert json.loads((await desk.call("spawn", action="start", command="sleep 600")).text)["error"] == "started"
