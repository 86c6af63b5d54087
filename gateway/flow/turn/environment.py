"""Agent environments: what the agent works with for one principal: files, persona, tools, time zone."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from gateway.agent.toolbox import Spill, Toolbox
from gateway.config.clock import SystemClock
from gateway.domain.clock import Clock
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label, Role
from gateway.flow.outbound.send_tool import SendTool
from gateway.flow.people import People
from gateway.llm.tokens import estimate_tool
from gateway.store.pool import Database
from gateway.store.transcript import files
from gateway.tools import Family, FindRead, PrincipalContext, ReadFile, RecordFile, Services, no_chats
from gateway.workspace.prompts import Persona, PersonaText
from gateway.workspace.tree import Workspace
from gateway.workspace.zone import zone_in

KEPT = 256


@dataclass(frozen=True)
class AgentEnvironment:
    """Everything a turn of one principal works with."""

    workspace: Workspace
    toolbox: Toolbox
    personas: Persona
    zone: Callable[[], str | None]
    """The principal's time zone, an IANA name: as configured, else as USER.md says; None while it is not known."""

    def persona(self) -> PersonaText:
        """The persona files as they are now; USER.md is the principal's own."""
        return self.personas.load(self.workspace)

    @cached_property
    def schema_tokens(self) -> int:
        """What the tools' schemas take of every prompt."""
        return sum(map(estimate_tool, self.toolbox.specs))


@dataclass
class AgentEnvironments:
    """Builds each environment once. The owner's files are the workspace; a member's lie outside it, under their id."""

    database: Database
    people: People
    workspace: Path
    others: Path
    families: Sequence[Family]
    send_tool: SendTool | None = None
    clock: Clock = field(default_factory=SystemClock)
    owner_zone: Callable[[], str | None] = lambda: None

    def __post_init__(self) -> None:
        self._workspace = Workspace(self.workspace)
        self._personas = Persona(self._workspace)
        self._built: OrderedDict[PrincipalId, AgentEnvironment] = OrderedDict()

    def of(self, principal: PrincipalId) -> AgentEnvironment:
        """The principal's environment; the least recently used are dropped and built again when needed."""
        if principal not in self._built:
            self._built[principal] = self._build(principal)
        self._built.move_to_end(principal)
        if len(self._built) > KEPT:
            self._built.popitem(last=False)
        return self._built[principal]

    def forget(self) -> None:
        """Drop all environments; each is built again when it is needed."""
        self._built.clear()

    def _build(self, principal: PrincipalId) -> AgentEnvironment:
        owner = self.people.is_owner(principal)
        workspace = self._workspace if owner else self._apart(principal)
        # Whoever is not the owner works on a store that holds nothing but their own.
        database = self.database if owner else self.database.bound(principal)
        own = Label.OWNER if owner else Label.KNOWN
        post = self.send_tool.bound(database).of(principal, workspace, own) if self.send_tool else no_chats
        recorder = _recorder(database, principal, own)
        zone = partial(self._zone, workspace, owner)
        context = PrincipalContext(principal, Role.OWNER if owner else Role.MEMBER, database.run, self.clock, zone)
        services = Services(workspace, recorder, post, _finder(database, principal), context)
        tools = [tool for family in self.families for tool in family(services)]
        return AgentEnvironment(workspace, Toolbox(tools, spill=_spill(workspace)), self._personas, zone)

    def _zone(self, workspace: Workspace, owner: bool) -> str | None:
        return (self.owner_zone() if owner else None) or zone_in(self._personas.user(workspace))

    def _apart(self, principal: PrincipalId) -> Workspace:
        root = self.others / str(principal)
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Workspace(root)


def _recorder(database: Database, principal: PrincipalId, least: Label) -> RecordFile:
    async def record(path: str, size: int, mime: str, sha256: str, label: Label) -> None:
        async with database.connection() as conn:
            await files.record(conn, principal, path, size=size, mime=mime, sha256=sha256, label=max(least, label))

    return record


def _finder(database: Database, principal: PrincipalId) -> FindRead:
    async def find(path: str) -> ReadFile | None:
        async with database.connection() as conn:
            row = await files.get(conn, principal, path)
        return ReadFile(row.text_path, row.pages, row.problem) if row and row.derived_at else None

    return find


def _spill(workspace: Workspace) -> Spill:
    async def spill(path: str, text: str, _label: Label) -> str:
        return (await workspace.write(path, text)).path

    return spill
