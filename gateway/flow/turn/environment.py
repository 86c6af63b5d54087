"""Agent environments: what the agent works with for one principal: files, persona, tools, time zone."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeAlias

from cachetools import LRUCache

from gateway.agent.memory.search import MemorySearch
from gateway.agent.skills.library import Skills
from gateway.agent.tool_sources import ToolSource
from gateway.agent.toolbox import Spill, Toolbox
from gateway.agent.work.agents import Agents
from gateway.agent.work.plans import Plans
from gateway.agent.work.task_trees import Trees
from gateway.agent.work.todo_lists import TodoLists
from gateway.config.model import BudgetSettings
from gateway.domain.conversation.model import PromptPart
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import InstanceId, PrincipalId, TaskId
from gateway.domain.memory.memories import Embedders
from gateway.domain.principals import Label, Role
from gateway.domain.work.tasks import Lane
from gateway.flow.approvals import Questions
from gateway.flow.engine import Engine
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.outbound.proactive import SendTool
from gateway.flow.secrets.guard import Clean
from gateway.flow.turn.opening import AgentPart, OpenedChat, OpenedTurn
from gateway.flow.turn.own_tools import OwnTools, StoredPlans
from gateway.secrets.leaks import Leaks
from gateway.store.connection.pool import Connection, Database
from gateway.store.files import files
from gateway.store.files.files import FileRow
from gateway.store.work import tasks, todo_lists
from gateway.tools import Bash, Family, Find, Keep, PrincipalContext, ReadFile, Services, Web
from gateway.workspace.files.disk import Written, measure
from gateway.workspace.files.pages import MOST
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.files.uploads import mime_of
from gateway.workspace.instructions import Persona, PersonaFile, PersonaFiles, zone_in
from gateway.workspace.locks import LockWatch
from gateway.workspace.tool_files.declaration import Internal

MAX_ENVIRONMENTS = 256
MakeSource: TypeAlias = Callable[[PrincipalId, bool, Workspace], ToolSource]
"""Makes a principal's source of tools; the flag says whether they are the owner."""


MEMORY_TOOLS = frozenset({"forget", "memory_get", "memory_search", "remember"})


@dataclass(frozen=True)
class AgentEnvironment:
    """The environment of one principal's turns."""

    workspace: Workspace
    toolbox: Toolbox
    personas: Persona
    zone: Callable[[], str | None]
    """The principal's time zone, an IANA name: as configured, else as USER.md says; None while it is unknown."""
    locks: LockWatch
    todo_lists: TodoLists
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

    @cached_property
    def without_memory(self) -> "AgentEnvironment":
        """The same for a temporary chat."""
        return replace(self, toolbox=self.toolbox.without(MEMORY_TOOLS))

    @cached_property
    def lean(self) -> "AgentEnvironment":
        """The same for a model with a small context: its prompts list few tools, in short."""
        return replace(self, toolbox=replace(self.toolbox, few=True))

    def for_agent(self, agent: AgentPart, *, private: bool) -> "AgentEnvironment":
        """The same with the tools and skills of an agent file."""
        toolbox = self.toolbox if private else self.toolbox.for_programs()
        return replace(self, toolbox=toolbox.only(agent.tools), skills=self.skills if agent.all_skills else None)

    def persona(self) -> PersonaFiles:
        """The persona files as they are now; USER.md is the principal's own."""
        persona = self.personas.load(self.workspace)
        return persona if self.tells_user else persona._replace(own=PersonaFile())

    async def skill_index(self) -> PromptPart:
        """The part of the prompt that lists the skills: the owner has confirmed their words."""
        return PromptPart(await self.skills.index() if self.skills else "", Label.OWNER, "the skills")

    async def persona_parts(self) -> tuple[PromptPart, ...]:
        """The persona files as parts of a prompt, HEARTBEAT.md last. Free once the files are known to be trusted."""
        *shared, own, beat = self.persona()
        home, about = self.personas.workspace, await _part(own, self.workspace, shared=False)
        return (*[await _part(each, home) for each in shared], about, await _part(beat, home))

    @cached_property
    def schema_tokens(self) -> int:
        """Tokens of the tools' schemas in every prompt."""
        return sum(spec.tokens for spec in self.toolbox.specs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """The parts that the tools of every principal are made of."""

    sources: Sequence[MakeSource]
    """Make the sources of tools that come and go."""
    send_tool: SendTool
    web: Web
    bash: Bash | None
    """None if this kernel can't confine the shell."""
    find: Find
    keep: Keep
    """Makes a checkpoint of the owner's files; others have none."""
    embedder: Embedders
    budgets: Callable[[], BudgetSettings]


@dataclass(kw_only=True)
class AgentEnvironments:
    """Builds each environment once."""

    engine: Engine
    workspaces: Workspaces
    own: OwnTools
    families: Sequence[Family]
    toolkit: Toolkit
    lock_watch: Callable[[PrincipalId, Workspace], LockWatch]
    questions: Questions
    clean: Clean
    """Replaces live secrets in what tools return."""
    leaks: Leaks
    """Finds secrets in texts that are still being written."""
    owner_zone: Callable[[], str | None]

    def __post_init__(self) -> None:
        self._personas = Persona(self.workspaces.own)
        self._todo_written = True
        self._version: tuple[str, ...] = ()
        self._built: LRUCache[tuple[PrincipalId, TaskId | None], AgentEnvironment] = LRUCache(MAX_ENVIRONMENTS)

    async def refresh(self) -> None:
        """Drop the owner's environments, forks too, if a tool file has changed; call it before a turn or a call."""
        if self._version != (now := await self.own.tool_files.look()):
            self._version = now
            for key in [key for key in self._built if self.engine.people.is_owner(key[0])]:
                del self._built[key]

    def switched_off(self) -> Mapping[str, str]:
        """The reason by tool of the owner that is off."""
        off = {
            file.config.tool: f"the tool file {file.name}"
            for file in (each.tool for each in self.own.tool_files.on)
            if isinstance(file.config, Internal) and not file.head.is_active
        }
        if not self.own.commands.offered():
            off["exec"] = self.own.commands.workshop.missing() or "tools.exec.mode"
        return off

    @property
    def reading(self) -> str:
        """How far a long look at the owner's files is; "" if there is none."""
        return self.workspaces.own.index.progress

    async def look_at_files(self) -> None:
        """Read the owner's files that are new or changed, so that no command has to wait for it."""
        if self.own.commands.offered():
            with suppress(WorkspaceError):  # a command says so
                await self.own.commands.look()

    async def for_turn(self, opened: OpenedTurn) -> AgentEnvironment:
        """The environment of one turn, with the tool files and the tools of sources as they are now."""
        await self.workspaces.own.settle()
        await self.refresh()
        environment = self._narrowed(opened)
        await environment.toolbox.refresh()
        return environment

    def _narrowed(self, opened: OpenedTurn) -> AgentEnvironment:
        chat, agent = isinstance(opened, OpenedChat), opened.agent
        environment = self.of(opened.principal.id, agent.fork if agent else None)
        if chat and not opened.private:
            environment = environment.for_tokens
        elif opened.temporary:
            environment = environment.without_memory
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
        return self._built[key]

    def forget(self) -> None:
        """Drop all environments to free memory."""
        self._built.clear()

    def _note_todo_list(self) -> None:
        self._todo_written = True

    async def drop_todo_lists(self) -> None:
        """Drop the to-do lists of runs that are over, with their sections in the files. Costs nothing without any."""
        if not self._todo_written:
            return
        self._todo_written = False  # before the await: a list may be written meanwhile
        try:
            whose = await self.engine.database.run(todo_lists.drop_finished)
            self._todo_written |= await self.engine.database.run(todo_lists.any_left)
        except TryAgainLater:
            self._todo_written = True
            return
        for principal in whose:
            await self.of(principal).todo_lists.render()

    def _build(self, principal: PrincipalId, fork: TaskId | None) -> AgentEnvironment:
        """A fork has no commands: they would run on the files that it has a copy of."""
        owner, own = self.engine.people.is_owner(principal), self.engine.people.own_label(principal)
        # A member's store holds nothing but their own rows.
        database = self.engine.database if owner else self.engine.database.bound(principal)
        workspace = self.workspaces.of(principal) if fork is None else self.workspaces.of_fork(principal, fork)
        own_files, kit = owner and fork is None, self.toolkit
        zone = partial(self._zone, workspace, owner)
        role, search = Role.OWNER if owner else Role.MEMBER, MemorySearch(database, kit.embedder)
        skills = self.own.skills if owner else None
        agents = self.own.agents if owner else Agents(workspace)
        locks = self.own.locks if own_files else self.lock_watch(principal, workspace)
        reader = _Reader(database, self.engine.database, principal, workspace, None if fork else self.engine.instance)
        todo = TodoLists(database, principal, own, workspace, self._note_todo_list)
        plans = Plans(StoredPlans(self.engine.database, own), own) if own_files else None
        services = Services(
            workspace,
            kit.send_tool.of(database, principal, workspace, own),
            reader.find,
            PrincipalContext(principal, role, database.run, self.engine.clock, zone, search),
            kit.web,
            skills,
            locks=locks,
            todo_lists=todo,
            plans=plans,
            keep=kit.keep if own_files else None,
            find=kit.find,
            sources=[make(principal, owner, workspace) for make in kit.sources],
            commands=self.own.commands if own_files else None,
            processes=self.own.processes if own_files else None,
            trees=Trees(agents, kit.budgets),
            engine=self.engine.database.run,
            bash=kit.bash,
        )
        tools = [tool for family in self.families for tool in family(services)]
        if owner:
            tools = self.own.tool_files.adjusted(tools)
        policy = self.questions.policy(principal, fork=fork is not None)
        toolbox = Toolbox(
            tools,
            _spill(workspace),
            policy=policy,
            clean=self.clean,
            watch=locks.running,
            todo_check=todo.refusal,
            sources=services.sources,
            fill=plans.fill if plans else None,
        )
        return AgentEnvironment(
            workspace, toolbox, self._personas, zone, locks, todo, self.leaks, agents, skills=skills
        )

    def _zone(self, workspace: Workspace, owner: bool) -> str | None:
        return (self.owner_zone() if owner else None) or zone_in(self._personas.user(workspace))


async def _part(file: PersonaFile, home: Workspace, *, shared: bool = True) -> PromptPart:
    """A file that could not be read says so in our words."""
    label = await home.labels.of(file.path, file.sha256) if file.sha256 else Label.OWNER
    name = file.path.rpartition("/")[2]
    text = f"=== {name} ===\n{file.text}" if file.text else ""
    return PromptPart(text, label, name, file.path, file.sha256, shared)


POLLS, POLL_SECONDS = 120, 0.25
"""For a file that is read only now; together less than a call may take."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """Finds what was read out of one person's files, in their own store.

    Tasks are the `engine`'s, as a member's store may change none; they run on `instance`, which has the files. Without
    it the files are a copy, of which nothing more is read.
    """

    database: Database
    engine: Database
    principal: PrincipalId
    workspace: Workspace
    instance: InstanceId | None

    async def find(self, path: str) -> ReadFile | None:
        """A `FindRead`: a file that nobody has sent, or that has changed since, is read first."""
        row = await self._stored(path)
        if self.instance is not None:
            now = await asyncio.to_thread(measure, self.workspace.root, path, MOST)
            new = row is None or row.derived_at is None or row.sha256 != now.sha256
            if new or (row and row.problem and row.mime.startswith(("audio/", "video/"))):
                label = await self.workspace.labels.of(path, now.sha256)
                await self.engine.run(lambda tx: self._queue(tx, now, label))
            row = await self._awaited(path) if new else row
        if row is None or row.derived_at is None:
            return None
        return ReadFile(row.text_path, row.pages, row.problem, row.view_path, row.beside)

    async def _stored(self, path: str) -> FileRow | None:
        return await self.database.read(lambda conn: files.get(conn, self.principal, path))

    async def _queue(self, tx: Connection, file: Written, label: Label) -> None:
        """Have the file read now, or a recording again."""
        path, size, sha256, mime, own = file.path, file.size, file.sha256, mime_of(file.path), files.OWN
        row = await files.keep(tx, self.principal, path, size=size, mime=mime, sha256=sha256, label=label, origin=own)
        about, dedupe, on = {"file": str(row.id)}, f"transcribe:{row.id}", self.instance
        await tasks.create(tx, self.principal, "transcribe", Lane.FILES, payload=about, dedupe=dedupe, instance=on)
        await tasks.hasten_kind(tx, "transcribe", dedupe)

    async def _awaited(self, path: str) -> FileRow:
        """The file once it is read; raises `ToolFailed` if that takes too long."""
        for _ in range(POLLS):
            if (row := await self._stored(path)) is not None and row.derived_at is not None:
                return row
            await asyncio.sleep(POLL_SECONDS)
        raise ToolFailed.own("not_read_yet", f"{path} is still being read; call read_file again in a minute.")


def _spill(workspace: Workspace) -> Spill:
    async def spill(path: str, text: str, label: Label) -> str:
        return (await workspace.write(path, text, label, unlocked=True)).path

    return spill
