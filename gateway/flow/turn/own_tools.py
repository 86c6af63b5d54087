"""Tools of the owner's agent alone: commands, processes, skills, agents, tool files of the workspace, and plans."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.agent.exec.processes import Processes
from gateway.agent.mcp.servers import Credentials, LocalServers, McpServers
from gateway.agent.skills.library import Skills
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.agent.work.agents import Agents
from gateway.config.model import McpServer
from gateway.domain.conversation.tools import Caller
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.texts import own_part
from gateway.domain.work.plans import Plan, PlanArguments
from gateway.flow.approvals import Questions
from gateway.flow.consultation import Consultation
from gateway.net.mcp.connections import Connections
from gateway.sandbox.workshop import Workshop
from gateway.store.connection.pool import Connection, Database
from gateway.store.transcript import messages, sessions, tool_calls
from gateway.store.transcript.tool_calls import PlanCall
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import REPLACED, LockKeeper, LockWatch, OwnerEdits

Tampered: TypeAlias = Callable[[PrincipalId, Sequence[str]], Awaitable[None]]
"""Reports that a tool changed locked text, which was restored. Never raises."""


def lock_watch(
    data: Path, workshop: Workshop, tampered: Tampered, principal: PrincipalId, workspace: Workspace
) -> LockWatch:
    """The watch that keeps locked text of one person's files unchanged; `data` is the gateway's data folder."""
    compared = not workshop.guards_instructions
    keeper = LockKeeper(workspace.root, data / REPLACED / str(principal), OwnerEdits(data), whole=compared)
    return LockWatch(workspace, keeper, partial(tampered, principal))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTools:
    """The owner's tools, one of each per process, however often the owner's environment is built."""

    locks: LockWatch
    skills: Skills
    agents: Agents
    tool_files: ToolFiles
    commands: WorkspaceCommands
    processes: Processes


@dataclass(frozen=True, slots=True)
class McpSource:
    """Builds a person's source of tools at MCP servers."""

    configured: Callable[[], dict[str, McpServer]]
    connections: Connections
    credentials: Credentials
    local: LocalServers
    questions: Questions

    def __call__(self, principal: PrincipalId, owner: bool, workspace: Workspace) -> McpServers:
        """The source for this person; large results are saved in `workspace`."""

        async def save(path: str, data: bytes) -> str:
            return (await workspace.write(path, data, Label.UNTRUSTED)).path

        parts = self.configured, self.questions.engine.database, self.connections, self.credentials, save, self.local
        return McpServers(principal, owner, *parts, Consultation(self.questions, principal))


@dataclass(frozen=True, slots=True)
class StoredPlans:
    """Plans in the transcript: the call of `plan`, or a schedule's, and the calls that say which steps they fill."""

    database: Database
    own: Label

    async def load(self, caller: Caller) -> Plan | None:
        """See `PlanStore`: later messages of the person, and edits of those being answered, make a plan void."""
        async with self.database.connection() as conn:
            if (row := await self._plan(conn, caller)) is None:
                return None
            spent = await tool_calls.spent_steps(conn, caller.task, row.ordinal)
            texts = await messages.being_answered(conn, caller.session, self.own)
        confirmed = caller.address is None
        if not (texts or confirmed):
            return None
        steps = PlanArguments.model_validate_json(row.arguments).steps
        return Plan(steps, json.loads(row.result)["planned"], spent, [own_part(text) for text in texts], confirmed)

    async def spend(self, caller: Caller, number: int, arguments: str) -> bool:
        """See `PlanStore`; the session's lock orders calls of one round."""

        async def spend(tx: Connection) -> bool:
            await sessions.lock(tx, caller.session)
            row = await self._plan(tx, caller)
            return row is not None and await tool_calls.spend_step(
                tx, caller.task, caller.ordinal, row.ordinal, number, arguments
            )

        return await self.database.run(spend)

    async def _plan(self, conn: Connection, caller: Caller) -> PlanCall | None:
        if caller.address is None:
            return await tool_calls.scheduled(conn, caller.task, self.own)
        return await tool_calls.planned(conn, caller.session, caller.task, self.own)
