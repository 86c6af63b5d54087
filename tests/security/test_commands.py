"""A yes to a command covers the files that the command can see, whatever the line calls them."""

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.domain.channels.channel import Capabilities
from gateway.domain.conversation.model import ToolCall
from gateway.domain.principals import Label
from gateway.sandbox.command import Limits
from gateway.store.connection.pool import Database
from gateway.store.files import contents
from gateway.workspace.files.tree import Workspace
from tests.fakes.caller import CALLER
from tests.fakes.channel import FakeChannel
from tests.fakes.eventually import eventually
from tests.flow.path import FakeModel, MessagePath, build, in_turn, restarted, said
from tests.sandbox.tiers import confines
from tests.security.test_approvals import state, tainted, wants

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")

STALE = "the command can see was changed after you were asked"
SPELLINGS = {
    "sh tool/sync.sh": "tool/sync.sh",
    "cd tool && sh sync.sh": "tool/sync.sh",
    "sh tool/sync.sh;true": "tool/sync.sh",
    "sh<tool/sync.sh": "tool/sync.sh",
    "python3 -m tool": "tool/__main__.py",
    "make -s -C tool": "tool/Makefile",
    "sh tool/*.sh": "tool/sync.sh",
    "sh t??l/sync.sh": "tool/sync.sh",
    "bash -c 'cd tool; sh sync.sh'": "tool/sync.sh",
    "d=tool; sh $d/sync.sh": "tool/sync.sh",
    "find . -name sync.sh | xargs sh": "tool/sync.sh",
    "sh run.sh": "tool/sync.sh",
}
FILES = {
    "tool/sync.sh": "touch ran; touch ../ran\n",
    "tool/__main__.py": "open('ran', 'w')\n",
    "tool/Makefile": "all:\n\ttouch ../ran\n",
    "run.sh": "cd tool && sh sync.sh\n",
}


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel) -> AsyncIterator[MessagePath]:
    (workspace / "tool").mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text)
    able = Capabilities(max_text=4096, buttons=True)
    path = await build(database, workspace, model, channel=FakeChannel(capabilities=able))
    yield path
    await path.parts.turns.own.processes.close()
    await path.parts.turns.own.commands.workshop.close()


def commands(path: MessagePath) -> WorkspaceCommands:
    return path.parts.turns.own.commands


def ran(path: MessagePath) -> bool:
    return (path.workspace / "ran").exists() or (path.workspace / "tool/ran").exists()


async def refused(path: MessagePath) -> bool:
    return STALE in str(await path.transcript())


@asynccontextmanager
async def asked(path: MessagePath, line: str = "cd tool && sh sync.sh") -> AsyncIterator[None]:
    """Between the question and the yes."""
    async with path.working():
        await tainted(path)
        assert "waiting_for_approval" in await wants(path, "exec", {"command": line})
        yield
        await path.ask("/approve A1")
        await path.settled()


async def tainted_call(at: MessagePath, tool: str, label: Label = Label.UNTRUSTED, **arguments: object) -> Any:
    """Another run of the owner's makes a call that needs no yes."""
    toolbox = at.environments.of(at.people.owner.id).toolbox
    outcome = await toolbox.run(ToolCall("1", tool, json.dumps(arguments)), replace(CALLER, label=label))
    assert not outcome.failed, outcome.text
    return json.loads(outcome.text)


async def by_command(path: MessagePath, line: str) -> None:
    """Run to its end all that others may have caused."""
    async with commands(path).permit(Label.UNTRUSTED) as permit:
        await (await commands(path).start(line, ".", permit, Limits())).report()


@pytest.mark.parametrize("line", SPELLINGS)
async def test_a_yes_is_void_once_a_script_was_rewritten_however_it_is_called(path: MessagePath, line: str) -> None:
    if line.startswith("make") and not shutil.which("make"):
        pytest.skip("no make here")
    async with asked(path, line):
        path.model.answer = in_turn(
            said("", ToolCall("", "write_file", json.dumps({"path": SPELLINGS[line], "content": FILES["run.sh"]}))),
            said("done"),
        )
        await path.ask("go on")
    assert await refused(path)
    assert not ran(path)


@pytest.mark.parametrize("line", SPELLINGS)
async def test_a_yes_holds_while_nothing_has_changed(path: MessagePath, line: str) -> None:
    if line.startswith("make") and not shutil.which("make"):
        pytest.skip("no make here")
    async with asked(path, line):
        pass
    assert ran(path)
    assert await state(path) == ["done"]


async def _moves(path: MessagePath) -> None:
    await tainted_call(path, "move_file", path="run.sh", to="tool/other.sh")


async def _deletes(path: MessagePath) -> None:
    await tainted_call(path, "delete_file", path="run.sh")


async def _edits(path: MessagePath) -> None:
    edits = [{"old_text": "touch", "new_text": "rm", "replace_all": True}]
    await tainted_call(path, "edit_file", path="tool/sync.sh", edits=edits)


async def _saves(path: MessagePath) -> None:
    await tainted_call(path, "bash", script="mkdir tool; echo evil > tool/sync.sh", save=["tool/sync.sh"])


async def _copies_own_words(path: MessagePath) -> None:
    """The content is the owner's; its place is not."""
    await tainted_call(path, "write_file", path="tool/sync.sh", content=FILES["run.sh"])


async def _runs(path: MessagePath) -> None:
    await by_command(path, "echo evil > tool/sync.sh")


async def _syncs(path: MessagePath) -> None:
    """As the replica of another machine's files does before it puts one in place."""
    await path.environments.own.commands.workspace.noted(Label.UNTRUSTED, False)


WAYS = [_moves, _deletes, _edits, _saves, _copies_own_words, _runs, _syncs]


@pytest.mark.parametrize("rewrite", WAYS)
async def test_a_yes_is_void_whatever_way_others_words_came(
    path: MessagePath, rewrite: Callable[[MessagePath], Awaitable[None]]
) -> None:
    async with asked(path):
        await rewrite(path)
    assert await refused(path)
    assert not ran(path)


@pytest.mark.parametrize("before", ["", "echo x > log; "])
async def test_a_yes_is_void_once_a_living_process_has_written(path: MessagePath, before: str) -> None:
    """Also through a mapping, whose later writes change no state of a file."""
    writes = (
        "import mmap, os, time\n"
        "file = open('mapped', 'r+b'); mapping = mmap.mmap(file.fileno(), 0); mapping[0] = 65\n"
        "open('ready', 'w')\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
        "mapping[0] = 66\n"
        "os.rmdir('go'); time.sleep(60)\n"
    )
    (path.workspace / "mapped").write_bytes(bytes(4096))
    (path.workspace / "writes.py").write_text(writes)
    async with commands(path).permit(Label.UNTRUSTED, lasting=True) as permit:
        permit.running = await commands(path).start(f"{before}exec python3 writes.py", ".", permit, Limits())
        await eventually((path.workspace / "ready").exists)
        async with asked(path):
            (path.workspace / "go").mkdir()
            await eventually(lambda: not (path.workspace / "go").exists())
        assert await refused(path)
    assert not ran(path)


async def test_a_living_process_that_writes_nothing_voids_nothing(path: MessagePath) -> None:
    async with commands(path).permit(Label.UNTRUSTED, lasting=True) as permit:
        await commands(path).start("echo x > log; touch ready; sleep 60", ".", permit, Limits())
        await eventually((path.workspace / "ready").exists)
        async with asked(path):
            pass
    assert ran(path)


async def test_one_that_has_written_nothing_so_far_voids_nothing(path: MessagePath) -> None:
    """Such as another command that was approved with it."""
    async with path.working():
        await tainted(path)
        await wants(path, "exec", {"command": "cd tool && sh sync.sh"})
        async with commands(path).permit(Label.UNTRUSTED) as permit:
            await commands(path).start("sleep 60", ".", permit, Limits())
            await path.ask("/approve A1")
            await path.settled()
    assert ran(path)


async def test_one_that_ended_without_a_write_voids_nothing(path: MessagePath) -> None:
    async with asked(path):
        await by_command(path, "cat tool/*")
    assert ran(path)


async def test_it_is_void_after_a_restart_too(path: MessagePath) -> None:
    async with path.working():
        await tainted(path)
        await wants(path, "exec", {"command": "cd tool && sh sync.sh"})
        await tainted_call(path, "write_file", path="tool/sync.sh", content="evil")
    again = await restarted(path)
    await again.outbound.adopt("fake", path.channel)
    async with again.working():
        await again.ask("/approve A1")
        await again.settled()
        assert await refused(path)
    await again.parts.turns.own.commands.workshop.close()
    assert not ran(path)


@pytest.mark.parametrize("listed", [True, False])
async def test_it_is_void_if_a_kill_cut_off_what_may_have_written(path: MessagePath, listed: bool) -> None:
    """Also before the start has come to listing the files."""
    async with asked(path):
        owner = path.people.owner.id
        async with path.database.transaction() as tx:
            await contents.begin_command(tx, owner, path.instance)
        if listed:
            async with path.database.transaction() as tx:
                await contents.commands_interrupted(tx, path.instance)
    assert not ran(path)


async def _own_run(path: MessagePath) -> None:
    await tainted_call(path, "write_file", Label.OWNER, path="notes.md", content="mine")


async def _own_editor(path: MessagePath) -> None:
    (path.workspace / "notes.md").write_text("mine")


async def _spill(path: MessagePath) -> None:
    await path.environments.of(path.people.owner.id).toolbox.spill("tool-results/x.json", "theirs", Label.UNTRUSTED)


async def _deleted_by_the_gateway(path: MessagePath) -> None:
    await path.environments.own.commands.workspace.remove("run.sh", unlocked=True)


async def _upload(path: MessagePath) -> None:
    workspace = path.environments.own.commands.workspace
    await workspace.write("uploads/letter.pdf.txt", "theirs", Label.UNTRUSTED, unlocked=True)


@pytest.mark.parametrize("change", [_own_run, _own_editor, _spill, _upload, _deleted_by_the_gateway])
async def test_ordinary_use_voids_nothing(path: MessagePath, change: Callable[[MessagePath], Awaitable[None]]) -> None:
    async with asked(path):
        await change(path)
    assert ran(path)


@pytest.mark.parametrize("line", ["cd tool-results && sh x.json", "sh t*/x.json", "d=tool; sh $d-results/x.json"])
async def test_what_the_gateway_files_counts_where_the_line_may_mean_it(path: MessagePath, line: str) -> None:
    async with asked(path, line):
        await _spill(path)
    assert await refused(path)


async def test_the_owners_own_change_to_a_file_that_was_shown_counts(path: MessagePath) -> None:
    async with asked(path, "cd tool;sh sync.sh"):
        (path.workspace / "tool/sync.sh").write_text("echo other")
    assert await refused(path)
    assert not ran(path)


async def test_what_others_write_while_it_waits_for_its_turn_counts(path: MessagePath) -> None:
    slots = commands(path).slots
    for _ in range(4):
        await slots.acquire()
    async with path.working():
        await tainted(path)
        await wants(path, "exec", {"command": "cd tool && sh sync.sh"})
        await path.ask("/approve A1")
        await eventually(lambda: bool(slots._waiters))
        await tainted_call(path, "write_file", path="tool/sync.sh", content="touch ../ran # evil")
        slots.release()
        await path.settled()
        assert await refused(path)
    assert not ran(path)


async def test_typed_lines_are_bound_in_the_same_way(path: MessagePath) -> None:
    async with path.working():
        started = await tainted_call(path, "spawn", Label.OWNER, action="start", command="sh")
        await tainted(path)
        typed = {"action": "write", "process": started["process"], "input": "cd tool && sh sync.sh"}
        assert "waiting_for_approval" in await wants(path, "spawn", typed)
        await tainted_call(path, "write_file", path="tool/sync.sh", content="evil")
        await path.ask("/approve A1")
        await path.settled()
        assert await refused(path)
    assert not ran(path)


async def test_a_command_that_was_denied_is_not_asked_again_for_a_change_elsewhere(path: MessagePath) -> None:
    line: Mapping[str, object] = {"command": "cd tool && sh sync.sh"}
    async with path.working():
        await tainted(path)
        await wants(path, "exec", line)
        await path.ask("/deny A1")
        await path.settled()
        await tainted_call(path, "write_file", path="elsewhere.md", content="x")
        assert (await wants(path, "exec", line))["error"] == "denied"


def test_a_workspace_without_commands_notes_nothing(tmp_path: Path) -> None:
    """Such as a fork's copy: no command sees it."""
    assert Workspace(tmp_path).noted.__name__ == "_unheard"
