"""Agent environments: the files, persona, tools and time zone that the agent works with for one principal."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.agent.exec.processes import Processes
from gateway.agent.memory.search import MemorySearch
from gateway.agent.skills.library import Skills
from gateway.agent.skills.sources import Fetch
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.agent.tool_sources import ToolSource
from gateway.agent.toolbox import Spill, Toolbox
from gateway.agent.work.agents import Agents
from gateway.agent.work.plans import Plans
from gateway.agent.work.task_trees import Trees
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import InstanceId, PrincipalId, TaskId
from gateway.domain.memory.memories import Embedders
from gateway.domain.principals import Label, Role
from gateway.domain.time import Clock
from gateway.flow.approvals.questions import Questions
from gateway.flow.labels import ContentLabels
from gateway.flow.outbound.send_tool import SendTool
from gateway.flow.people import People
from gateway.flow.secrets.guard import Clean
from gateway.flow.turn.opening import AgentPart, OpenedChat, OpenedTurn
from gateway.llm.prices import estimate_tool
from gateway.sandbox.workshop import Workshop
from gateway.secrets.leaks import Leaks
from gateway.store.connection.pool import Database
from gateway.store.files import files
from gateway.store.work import plans
from gateway.tools import Bash, Family, Find, FindRead, Keep, PrincipalContext, ReadFile, Services, Web
from gateway.workspace.files.access import Quota
from gateway.workspace.files.copies import copy_workspace
from gateway.workspace.files.index import INDEX_FOLDER
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import Persona, PersonaFile, PersonaText, zone_in
from gateway.workspace.journal.files import Place
from gateway.workspace.locks import REPLACED, LockKeeper, LockWatch, OwnerEdits
from gateway.workspace.template import template_hashes
from gateway.workspace.tool_files.declaration import Internal

MAX_ENVIRONMENTS = 256
MakeSource: TypeAlias = Callable[[PrincipalId, bool, Workspace], ToolSource]
"""Makes a principal's source of tools; the flag says whether they are the owner."""


@dataclass(frozen=True)
class AgentEnvironment:
    """The environment of one principal's turns; `home` are the owner's files, with the persona files."""

    home: Workspace
    workspace: Workspace
    toolbox: Toolbox
    personas: Persona
    zone: Callable[[], str | None]
    """The principal's time zone, an IANA name: as configured, else as USER.md says; None while it is unknown."""
    locks: LockWatch
    plans: Plans
    leaks: Leaks
    agents: Agents
    """The agents with a file in `workspace`, and `main`."""
    tells_user: bool = True
    skills: Skills | None = None
    """The owner's; others have none."""

    @cached_property
    def for_programs(self) -> "AgentEnvironment":
        """The same without private tools, for a program that asks."""
        return replace(self, toolbox=self.toolbox.for_programs())

    @cached_property
    def for_tokens(self) -> "AgentEnvironment":
        """The same without tools and USER.md: a plain token reads nothing and does nothing here."""
        return replace(self, toolbox=self.toolbox.for_tokens(), tells_user=False, skills=None)

    def for_agent(self, agent: AgentPart, *, private: bool) -> "AgentEnvironment":
        """The same with the tools and skills of an agent file."""
        toolbox = self.toolbox if private else self.toolbox.for_programs()
        return replace(self, toolbox=toolbox.only(agent.tools), skills=self.skills if agent.all_skills else None)

    def persona(self) -> PersonaText:
        """The persona files as they are now; USER.md is the principal's own."""
        persona = self.personas.load(self.workspace)
        return persona if self.tells_user else replace(persona, user="", own=PersonaFile())

    async def skill_index(self) -> str:
        """The part of the prompt that lists the confirmed skills."""
        return await self.skills.index() if self.skills else ""

    async def labelled(self, persona: PersonaText, *, heartbeat: bool) -> dict[PersonaFile, Label]:
        """The label of each persona file of a prompt. Costs nothing once the files are known to be trusted."""
        files = [file for file in (*persona.shared, persona.own) if file.sha256]
        used = [file for file in files if heartbeat or not file.path.endswith("HEARTBEAT.md")]
        homes = {file: self.workspace if file is persona.own else self.home for file in used}
        return {file: await home.labels.of(file.path, file.sha256) for file, home in homes.items()}

    @cached_property
    def schema_tokens(self) -> int:
        """Tokens of the tools' schemas in every prompt."""
        return sum(map(estimate_tool, self.toolbox.specs))


@dataclass
class AgentEnvironments:
    """Builds each environment once. The owner works in `workspace`; a member's files lie in `others`, by id."""

    database: Database
    people: People
    workspace: Path
    others: Path
    families: Sequence[Family]
    send_tool: SendTool
    clock: Clock
    _: KW_ONLY
    owner_zone: Callable[[], str | None]
    member_mb: Callable[[], int | None]
    """Megabytes that the files of a member may take; None: no limit."""
    questions: Questions
    embedder: Embedders
    fetch: Fetch
    """Reads the links of skills."""
    unverified: Callable[[Place], bool]
    """Whether somebody may have changed a journal's file."""
    instance: InstanceId
    clean: Clean
    leaks: Leaks
    """Finds secrets in texts that are still being written."""
    web: Web
    workshop: Workshop
    exec_mode: Callable[[], str]
    sources: Sequence[MakeSource]
    """Make the sources of tools that come and go."""
    tool_files: ToolFiles
    """The owner's."""
    tampered: Callable[[PrincipalId, Sequence[str]], Awaitable[None]]
    """Reports that locked text was changed by a tool, and restored. Never raises."""
    tell_owner: Callable[[str], Awaitable[None]]
    """Reports an agent file that is wrong."""
    task_usd: Callable[[], float | None]
    """The default budget of a tree of tasks."""
    keep: Keep
    """Makes a checkpoint of the owner's files; others have none."""
    find: Find
    bash: Bash | None
    """None if this kernel can't confine the shell."""

    def __post_init__(self) -> None:
        self._harmless = template_hashes()
        owner = self.people.owner.id
        labels = self._labels(self.database, owner, self.workspace)
        self._workspace = Workspace(self.workspace, labels, self._index_file(owner))
        self._own_locks = self._locks(self.people.owner.id, self._workspace)
        self._personas = Persona(self._workspace)
        self.skills = Skills(self.database, self._workspace, self.clock, self.fetch)
        self.agents = Agents(self._workspace, self.tell_owner)
        own = self.people.own_label(self.people.owner.id)
        self.commands = WorkspaceCommands(
            self.workshop, self._workspace, own, self.exec_mode, self.web.rules, self._own_locks
        )
        self.processes = Processes(self.commands)
        self._planned = True
        self._forks = self.others.parent / "forks"
        self._version: tuple[str, ...] = ()
        self._quotas: dict[PrincipalId, Quota] = {}
        self._built: OrderedDict[tuple[PrincipalId, TaskId | None], AgentEnvironment] = OrderedDict()

    async def refresh(self) -> None:
        """Drop the owner's environments, forks too, if a tool file has changed; call it before a turn or a call."""
        if self._version != (now := await self.tool_files.look()):
            self._version = now
            for key in [key for key in self._built if self.people.is_owner(key[0])]:
                del self._built[key]

    def switched_off(self) -> Mapping[str, str]:
        """The reason by tool of the owner that is off."""
        off = {
            file.config.tool: f"the tool file {file.name}"
            for file in (each.tool for each in self.tool_files.on)
            if isinstance(file.config, Internal) and not file.head.is_active
        }
        if not self.commands.offered():
            off["exec"] = self.commands.workshop.missing() or "tools.exec.mode"
        return off

    @property
    def reading(self) -> str:
        """How far a long look at the owner's files is; "" if there is none."""
        return self._workspace.index.progress

    async def look_at_files(self) -> None:
        """Read the owner's files that are new or changed, so that no command has to wait for it."""
        if self.commands.offered():
            with suppress(WorkspaceError):  # a command says so
                await self.commands.look()

    async def for_turn(self, opened: OpenedTurn) -> AgentEnvironment:
        """The environment of one turn, with the tool files and the tools of sources as they are now."""
        await self.refresh()
        environment = self._narrowed(opened)
        await environment.toolbox.refresh()
        return environment

    def _narrowed(self, opened: OpenedTurn) -> AgentEnvironment:
        chat, agent = isinstance(opened, OpenedChat), opened.agent
        environment = self.of(opened.principal.id, agent.fork if agent else None)
        if chat and not opened.private:
            environment = environment.for_tokens
        elif agent is None and not opened.private:
            environment = environment.for_programs
        return environment.for_agent(agent, private=opened.private) if agent else environment

    def of(self, principal: PrincipalId, fork: TaskId | None = None) -> AgentEnvironment:
        """The principal's environment; the least recently used are dropped and built again when needed.

        A fork of the principal's task is asked about before every act, and works on files of its own.
        """
        key = (principal, fork)
        if key not in self._built:
            self._built[key] = self._build(principal, fork)
        self._built.move_to_end(key)
        if len(self._built) > MAX_ENVIRONMENTS:
            self._built.popitem(last=False)
        return self._built[key]

    async def copy_for(self, principal: PrincipalId, fork: TaskId) -> None:
        """Copy the principal's files for a fork, once. Copies older than a week are deleted."""
        await asyncio.to_thread(copy_workspace, self.of(principal).workspace.root, self._forks, str(fork))

    def forget(self) -> None:
        """Drop all environments to free memory."""
        self._built.clear()

    def _plan_written(self) -> None:
        self._planned = True

    async def drop_plans(self) -> None:
        """Drop the plans of runs that are over, with their sections in the files. Costs nothing without plans."""
        if not self._planned:
            return
        self._planned = False  # before the await: a plan may be written meanwhile
        try:
            whose = await self.database.run(plans.drop_finished)
            self._planned |= await self.database.run(plans.any_left)
        except TryAgainLater:
            self._planned = True
            return
        for principal in whose:
            await self.of(principal).plans.render()

    def _labels(self, database: Database, principal: PrincipalId, root: Path) -> ContentLabels:
        def unverified(path: str) -> bool:
            return self.unverified(Place(root, path))

        own = self.people.own_label(principal)
        return ContentLabels(database, principal, own, self._harmless, unverified, self.instance)

    def _workspace_of(self, database: Database, principal: PrincipalId, fork: TaskId | None) -> Workspace:
        owner = self.people.is_owner(principal)
        if owner and fork is None:
            return self._workspace
        root = self.others / str(principal) if fork is None else self._forks / str(fork)
        if fork is None:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        index = self._index_file(principal) if fork is None else None
        workspace = Workspace(root, self._labels(database, principal, root), index)
        if not owner:
            workspace.quota = self._quotas.setdefault(principal, Quota(root, self.member_mb))
        return workspace

    def _build(self, principal: PrincipalId, fork: TaskId | None) -> AgentEnvironment:
        """A fork has no commands: they would run on the files that it has a copy of."""
        owner = self.people.is_owner(principal)
        # A member's store holds nothing but their own rows.
        database = self.database if owner else self.database.bound(principal)
        workspace = self._workspace_of(database, principal, fork)
        own, own_files = self.people.own_label(principal), owner and fork is None
        zone = partial(self._zone, workspace, owner)
        role, search = Role.OWNER if owner else Role.MEMBER, MemorySearch(database, self.embedder)
        context = PrincipalContext(principal, role, database.run, self.clock, zone, search)
        skills = self.skills if owner else None
        agents = self.agents if owner else Agents(workspace)
        locks = self._own_locks if own_files else self._locks(principal, workspace)
        planned = Plans(database, principal, own, workspace, self._plan_written)
        services = Services(
            workspace,
            self.send_tool.of(database, principal, workspace, own),
            _finder(database, principal),
            context,
            self.web,
            skills,
            locks=locks,
            plans=planned,
            keep=self.keep if own_files else None,
            find=self.find,
            sources=[make(principal, owner, workspace) for make in self.sources],
            commands=self.commands if own_files else None,
            processes=self.processes if own_files else None,
            trees=Trees(agents, self.task_usd),
            engine=self.database.run,
            bash=self.bash,
        )
        tools = [tool for family in self.families for tool in family(services)]
        if owner:
            tools = self.tool_files.adjusted(tools)
        policy = self.questions.policy(principal, fork=fork is not None)
        toolbox = Toolbox(
            tools, _spill(workspace), policy, self.clean, services.sources, locks.running, planned.refusal
        )
        return AgentEnvironment(
            self._workspace,
            workspace,
            toolbox,
            self._personas,
            zone,
            locks,
            planned,
            self.leaks,
            agents=agents,
            skills=skills,
        )

    def _locks(self, principal: PrincipalId, workspace: Workspace) -> LockWatch:
        data = self.others.parent
        whole = not self.workshop.guards_instructions
        keeper = LockKeeper(workspace.root, data / REPLACED / str(principal), OwnerEdits(data), whole=whole)
        return LockWatch(workspace, keeper, partial(self.tampered, principal))

    def _zone(self, workspace: Workspace, owner: bool) -> str | None:
        return (self.owner_zone() if owner else None) or zone_in(self._personas.user(workspace))

    def _index_file(self, principal: PrincipalId) -> Path:
        return self.others.parent / INDEX_FOLDER / str(principal)


def _finder(database: Database, principal: PrincipalId) -> FindRead:
    async def find(path: str) -> ReadFile | None:
        row = await database.read(lambda conn: files.get(conn, principal, path))
        return ReadFile(row.text_path, row.pages, row.problem) if row and row.derived_at else None

    return find


def _spill(workspace: Workspace) -> Spill:
    async def spill(path: str, text: str, label: Label) -> str:
        return (await workspace.write(path, text, label, unlocked=True)).path

    return spill
