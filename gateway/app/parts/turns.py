"""Turns: the agent's environment for each person, and the parts that run its turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.agent.exec.processes import Processes
from gateway.agent.mcp.servers import LocalServers
from gateway.agent.skills.library import Skills
from gateway.agent.skills.sources import guarded
from gateway.agent.tool_files.calls import AccessTokens, DeclaredTools
from gateway.agent.tool_files.confirmed import FORM as TOOL_FILES
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.agent.work.agents import Agents
from gateway.app.parts.core import Core, Records
from gateway.app.parts.way_out import WayOut
from gateway.background.cpu.executor import ScratchFolder, run_alone
from gateway.background.cpu.extraction import WebPages
from gateway.background.cpu.virtual_shells import VirtualShells
from gateway.flow.approvals import Questions
from gateway.flow.files.sync import FileSync
from gateway.flow.outbound.proactive import SendTool
from gateway.flow.turn.compaction import Compactor
from gateway.flow.turn.environment import AgentEnvironments, MakeSource, Toolkit
from gateway.flow.turn.own_tools import McpSource, OwnTools, lock_watch
from gateway.flow.turn.runner import AgentParts, RunFinisher, TurnRunner
from gateway.net.addresses import Rules
from gateway.net.mcp.connections import Connections
from gateway.net.search import WebSearcher
from gateway.sandbox.remote.client import open_workshop
from gateway.sandbox.virtual import shell
from gateway.sandbox.workshop import Workshop
from gateway.tools import Bash, Family, Web
from gateway.workspace.files.search import search_files
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import LockWatch

SEARCH_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns(AgentParts):
    """The parts that run turns, and what they use."""

    shells: VirtualShells
    mcp: Connections
    own: OwnTools

    async def close(self) -> None:
        """End the processes and connections of the turns."""
        await self.mcp.close()
        await self.shells.close()
        await self.own.processes.close()
        await self.own.commands.workshop.close()


def build_turns(core: Core, records: Records, way_out: WayOut, *, families: Sequence[Family]) -> Turns:
    """Build the turns; starts nothing."""
    current = core.current
    questions = Questions(core, way_out.proactive, lambda: current.config.reviews)
    web = _web(core, records)
    workshop = open_workshop(core.environment.state / "scratch", core.environment.workshop)
    shells = VirtualShells(core.environment.state / "shells")
    mcp = Connections(core.net_rules)
    watch_of = partial(lock_watch, core.environment.data, workshop, way_out.notices.tampered)
    own = _own_tools(core, records, way_out, web, workshop, watch_of(core.people.owner.id, records.workspaces.own))
    toolkit = Toolkit(
        sources=_sources(core, own, web, mcp, questions),
        send_tool=SendTool(way_out.proactive),
        web=web,
        bash=Bash(shells.run, current.bash_urls) if shell.is_supported() else None,
        find=partial(run_alone, search_files, seconds=SEARCH_SECONDS),
        keep=records.checkpointing.create,
        embedder=records.embedders.embedder,
        budgets=lambda: current.config.budgets,
    )
    environments = AgentEnvironments(
        engine=core,
        workspaces=records.workspaces,
        own=own,
        families=families,
        toolkit=toolkit,
        lock_watch=watch_of,
        questions=questions,
        clean=core.cleaner("tools"),
        leaks=core.mask.leaks,
        owner_zone=lambda: current.config.owner.timezone,
    )
    return Turns(
        questions=questions,
        shells=shells,
        mcp=mcp,
        own=own,
        environments=environments,
        runner=TurnRunner(
            engine=core,
            models=lambda: current.model,
            limits=current.limits,
            budgets=records.budgets,
            environments=environments,
            compactor=Compactor(core, current.summary_model, lambda: current.config.compaction.at_tokens),
        ),
        finisher=RunFinisher(core, way_out.proactive),
        file_sync=FileSync(
            engine=core,
            workspaces=records.workspaces,
            locks_of=lambda principal: environments.of(principal).locks,
            data=core.environment.data,
            settings=lambda: current.config.workspace,
            rules=core.net_rules,
            at_home=lambda: core.workplace.here,
            tell_owner=way_out.notices.tell_owner,
        ),
    )


def _sources(core: Core, own: OwnTools, web: Web, mcp: Connections, questions: Questions) -> Sequence[MakeSource]:
    """The sources of tools that come and go: MCP servers and tool files."""
    tokens = AccessTokens(core.secrets, web.rules, core.clock)
    servers = McpSource(
        configured=lambda: {**own.tool_files.servers, **core.current.config.tools.mcp},
        connections=mcp,
        credentials=core.secrets,
        local=LocalServers(own.commands.workshop, core.environment.data, mcp.rules),
        questions=questions,
    )
    return servers, lambda principal, owner, _: DeclaredTools(principal, owner, own.tool_files, tokens, own.commands)


def _web(core: Core, records: Records) -> Web:
    """The web for tools; its rules and its search follow the configuration at each request."""

    def rules() -> Rules:
        web = core.current.config.tools.web
        return Rules.of(core.current.config.net.private_allow, web.allow_hosts, web.deny_hosts)

    search = WebSearcher(lambda: core.current.config.tools.web.search, core.net_rules)
    # Processes that share a data folder each have their own state folder.
    return Web(rules, search, WebPages(records.cpu, ScratchFolder(core.environment.state / "web-pages")).read)


def _own_tools(
    core: Core, records: Records, way_out: WayOut, web: Web, workshop: Workshop, locks: LockWatch
) -> OwnTools:
    workspace, fetch, owner = records.workspaces.own, guarded(web.rules), core.people.owner.id
    commands = WorkspaceCommands(
        workshop, workspace, core.people.own_label(owner), lambda: core.current.config.tools.exec.mode, web.rules, locks
    )
    unlabelled = Workspace(core.environment.workspace)
    return OwnTools(
        locks=locks,
        skills=Skills(core.database, workspace, core.clock, fetch),
        agents=Agents(workspace, way_out.notices.tell_owner),
        tool_files=ToolFiles(Skills(core.database, unlabelled, core.clock, fetch, TOOL_FILES)),
        commands=commands,
        processes=Processes(commands),
    )
