"""A workspace with the jail beside it, and the tools that run commands there."""

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.agent.exec.processes import Processes
from gateway.agent.policy import Act, Policy, nobody
from gateway.agent.toolbox import ApprovedCall, Toolbox, ToolOutcome
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import Caller
from gateway.domain.principals import Label
from gateway.net.addresses import Rules
from gateway.sandbox.workshop import Workshop
from gateway.tools import Services
from gateway.tools import exec as exec_tool
from gateway.tools import spawn as spawn_tool
from gateway.workspace.files.disk import Written
from gateway.workspace.files.tree import Labels, Workspace
from gateway.workspace.locks import LockKeeper, LockWatch, OwnerEdits
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import toolbox_of


@dataclass
class Shelf(Labels):
    """Labels by hash, as the database keeps them."""

    others: dict[str, Label] = field(default_factory=dict)
    doubt: int = 0
    journals: Label = Label.OWNER
    names: dict[str, Label] = field(default_factory=dict)
    changes: int = 0

    async def of(self, path: str, sha256: str) -> Label:
        return self.journals if path.startswith("memory/") else self.others.get(sha256, Label.OWNER)

    async def of_names(self, folder: str) -> Label:
        return self.names.get(folder, Label.OWNER)

    async def less_trusted(self, hashes: Collection[str]) -> Mapping[str, Label]:
        return {each: self.others[each] for each in hashes if each in self.others}

    async def note_change(self) -> None:
        self.changes += 1

    async def last_change(self) -> tuple[str, bool]:
        return str(self.changes), False

    async def begin_command(self, hashes: Collection[str]) -> None:
        self.doubt += 1

    async def note(self, file: Written, label: Label, _mime: str) -> None:
        self.others[file.sha256] = label

    async def end_command(self, hashes: Collection[str]) -> None:
        self.doubt -= 1
        self.others |= dict.fromkeys(hashes, Label.UNTRUSTED)


async def told_nobody(_paths: Sequence[str]) -> None: ...


def commands_on(workshop: Workshop, workspace: Workspace, rules: Callable[[], Rules] = Rules) -> WorkspaceCommands:
    """The owner's commands, switched on."""
    base = workspace.root.parent
    locks = LockWatch(workspace, LockKeeper(workspace.root, base / "aside", OwnerEdits(base)), told_nobody)
    return WorkspaceCommands(workshop, workspace, Label.OWNER, lambda: "auto", rules, locks)


@dataclass
class Desk:
    base: Path
    workshop: Workshop
    mode: str = "auto"
    labels: Shelf = field(default_factory=Shelf)
    caller: Caller = CALLER
    told: list[Sequence[str]] = field(default_factory=list)
    """Where locked text was put back."""

    def __post_init__(self) -> None:
        self.root = self.base / "workspace"
        self.workspace = Workspace(self.root, self.labels)
        self.locks = LockWatch(
            self.workspace, LockKeeper(self.root, self.base / "aside", OwnerEdits(self.base)), self._tell
        )
        self.commands = WorkspaceCommands(
            self.workshop, self.workspace, Label.OWNER, lambda: self.mode, Rules, self.locks
        )
        self.processes = Processes(self.commands)
        services = Services(self.workspace, commands=self.commands, processes=self.processes)
        self.tools = (*exec_tool.tools(services), *spawn_tool.tools(services))
        self.approved: ApprovedCall | None = None
        self.toolbox = self.toolbox_of(Label.OWNER)

    def toolbox_of(self, read: Label) -> Toolbox:
        """That of the owner, who approves every act of a run that has read texts of this label."""
        policy = Policy(Label.OWNER, ask=nobody if read is Label.OWNER else self._approve)
        return toolbox_of(self.tools, self.spill, policy, watch=self.locks.running)

    async def _approve(self, act: Act, _caller: Caller) -> Mapping[str, Any]:
        self.approved = ApprovedCall(act.kind, act.change.base)
        return {"waiting_for_approval": "A1"}

    async def spill(self, name: str, _text: str, _label: Label) -> str:
        return name

    async def _tell(self, paths: Sequence[str]) -> None:
        self.told.append(paths)

    async def call(self, tool: str, **arguments: object) -> ToolOutcome:
        self.caller = replace(self.caller, ordinal=self.caller.ordinal + 1)
        call = ToolCall("1", tool, json.dumps(arguments))
        outcome, approval = await self.toolbox.run(call, self.caller), self.approved
        if approval is None:
            return outcome
        self.approved = None
        return await self.toolbox.run(call, self.caller, approval=approval)

    async def outcome(self, command: str, **arguments: object) -> ToolOutcome:
        return await self.call("exec", command=command, **arguments)

    async def run(self, command: str, **arguments: object) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads((await self.outcome(command, **arguments)).text)
        return answer

    async def spawn(self, action: str, **arguments: object) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads((await self.call("spawn", action=action, **arguments)).text)
        return answer

    async def until_ended(self, process: str) -> Mapping[str, Any]:
        """Poll until it has ended."""
        while (answer := await self.spawn("poll", process=process, wait=1))["running"]:
            pass
        return answer

    async def until(self, process: str, done: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Poll until what came so far, as `output`, is enough."""
        output = ""
        for _ in range(120):
            answer = await self.spawn("poll", process=process, wait=1)
            output += answer["output"]
            if done({**answer, "output": output}):
                return {**answer, "output": output}
        raise AssertionError(output)


@asynccontextmanager
async def laid(base: Path) -> AsyncIterator[Desk]:
    for name in ("sessions", "memory", "uploads", "notes"):
        (base / "workspace" / name).mkdir(parents=True)
    (base / "workspace/AGENTS.md").write_text("Be kind.")
    workshop = Workshop(base / "scratch")
    desk = Desk(base, workshop)
    try:
        yield desk
    finally:
        await desk.processes.close()
        await workshop.close()
