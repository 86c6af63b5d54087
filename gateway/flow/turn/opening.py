"""Opening a turn: the messages it answers, and how far an interrupted run of its task came, both read from the rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from gateway.agent.conversation.compaction import own_turn, turn_after
from gateway.agent.limits import Spent
from gateway.agent.memory.search import Recalled
from gateway.domain.conversation.inbound import NO_OPTIONS, PROGRAMS, ClientOptions
from gateway.domain.conversation.model import PromptPart, ToolSpec
from gateway.domain.conversation.tools import Caller
from gateway.domain.conversation.transcript import Attached, ToolIntent, UserText
from gateway.domain.ids import MessageId, SessionId, TaskId
from gateway.domain.principals import Label, Principal
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.turn.steps import Fence
from gateway.store.connection.pool import Connection
from gateway.store.delivery import inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.files import attachments
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions, tool_calls
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import steps, tasks
from gateway.store.work.tasks import ChatRows, OpenedClaim


@dataclass(frozen=True, slots=True)
class Reminder:
    """Memories that a turn is given without a search: `standing` for the whole session, `recalled` before the newest
    messages."""

    standing: PromptPart
    recalled: Recalled


NO_REMINDER = Reminder(PromptPart("", Label.OWNER), Recalled("", Label.OWNER))


@dataclass(frozen=True, slots=True)
class AgentPart:
    """The prompt, tools and budget that an agent file adds to a turn."""

    parts: tuple[PromptPart, ...]
    """The parts that it adds to the prompt."""
    tools: frozenset[str] | None
    """The only tools it has; None: all but those that start trees."""
    all_skills: bool
    """Whether the prompt lists every skill."""
    usd: float | None
    """Most that one run may cost; None: as configured."""
    label: Label
    """How far its file is trusted. The run is trusted no more, as its own words can't be left out."""
    fork: TaskId | None = None
    """The fork that its task belongs to."""
    system_tools: tuple[ToolSpec, ...] = ()
    """Tools whose calls the engine carries out; a chat has none."""


@dataclass(frozen=True, slots=True)
class OpenedTurn:
    """The state a turn starts from, as it was when the turn was opened; all of it is stored in the database."""

    opening: "Opening"
    principal: Principal
    label: Label
    at: AddressRow | None
    """Where the answer goes; None if nobody waits for one."""
    transcript: Sequence[MessageRow]
    asked: Sequence[MessageRow]
    """The messages it answers."""
    spent: Spent
    first_ordinal: int
    """The first free key for a tool call of its task."""
    files: Sequence[Attached] = ()
    """The newest `LISTED_FILES` files of the conversation, out of `all_files`."""
    all_files: int = 0
    history: Sequence[MessageRow] = ()
    """Messages of another conversation, shown before its own."""
    heartbeat: bool = False
    private: bool = True
    """Whether it may use memory; not if a program asks, by a token or a trigger."""
    reminder: Reminder = NO_REMINDER
    client: ClientOptions = NO_OPTIONS
    """Options of the program that asks."""

    @property
    def run(self) -> Claim:
        """The claim it belongs to."""
        return self.opening.run

    @property
    def session(self) -> SessionId:
        """The session of the claim."""
        return self.opening.session

    @property
    def agent(self) -> AgentPart | None:
        """None for the agent that people chat with."""
        return self.opening.agent

    def with_agent(self, agent: AgentPart) -> Self:
        """The same turn, put to this agent, also when it is opened again."""
        return replace(self, opening=replace(self.opening, agent=agent))

    @property
    def remembers(self) -> bool:
        """Whether it is told from memory. A heartbeat isn't, to stay cheap; its tools can search."""
        return self.private and not self.heartbeat and not self.temporary

    @property
    def temporary(self) -> bool:
        """Whether it is in a temporary chat, from and to which nothing is remembered."""
        return self.at is not None and self.at.address.temporary

    @property
    def solo(self) -> bool:
        """Whether it answers exactly one message."""
        return any(row.solo for row in self.asked)

    @property
    def asked_ids(self) -> tuple[MessageId, ...]:
        """The messages it answers so far."""
        return tuple(row.id for row in self.asked)

    def caller(self, fence: Fence) -> Caller:
        """On whose behalf its tools are called."""
        address = self.at.id if self.at else None
        return Caller(self.run.id, self.first_ordinal, self.session, address, self.label, fence.cross, fence.check)

    def pending(self) -> tuple[ToolIntent, ...]:
        """Calls of this turn that a crash left without a result."""
        rows = own_turn(self.transcript, self.run.id)
        done = {row.ordinal for row in rows if row.kind == "tool_result"}
        return tuple(entry for row in rows if isinstance(entry := row.entry, ToolIntent) and entry.ordinal not in done)


@dataclass(frozen=True, slots=True)
class OpenedChat(OpenedTurn):
    """A turn of a chat."""

    at: AddressRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening(ABC):
    """Opens the turn of one claim, and opens it again later with the rows as they are then."""

    run: Claim
    agent: AgentPart | None = None
    """None for the agent that people chat with."""

    @abstractmethod
    async def open(self, tx: Connection) -> OpenedTurn | None:
        """None if nothing is left to answer; the task has ended then, or waits. Raises `RunLost`."""

    @property
    def session(self) -> SessionId:
        """The session of the claim."""
        assert self.run.session_id is not None, "a task that asks a model has a session"
        return self.run.session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOpening(Opening):
    """Takes the unread messages of a chat whose files have arrived."""

    rows: ChatRows | None = None
    """The rows that its claim has read; None: they are read now."""

    @classmethod
    def of(cls, run: Claim) -> Self:
        """The opening of this run, which its claim may have begun."""
        return cls(run=run, rows=run.chat if isinstance(run, OpenedClaim) else None)

    async def open(self, tx: Connection) -> OpenedChat | None:
        """The task waits while files are being fetched."""
        run, session = self.run, self.session
        rows = self.rows or await tasks.open_chat(tx, run, session)
        if rows is None:
            return None
        at, label, transcript = rows.at, rows.label, rows.transcript
        asked = [row for row in transcript if row.open]
        private, client = True, None
        if at.channel in PROGRAMS:
            as_owner, client = await inbox.client_input(tx, at.address, [row.platform_id for row in asked])
            private = as_owner or not at.address.by_token
        return OpenedChat(
            opening=replace(self, rows=None),
            principal=rows.principal,
            label=label,
            at=at,
            transcript=transcript,
            asked=asked,
            spent=await _spent(tx, run, session, transcript),
            first_ordinal=await _first_ordinal(tx, run, transcript),
            files=rows.files,
            all_files=rows.all_files,
            private=private,
            client=ClientOptions.of(client, label),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOpening(Opening):
    """Stores the prompt of an unattended run, once; a fork's is stored already, as `asked`."""

    prompt: str
    label: Label
    origin: str
    history: Sequence[MessageRow] = ()
    heartbeat: bool = False
    private: bool = False
    asked: MessageId | None = None

    async def open(self, tx: Connection) -> OpenedTurn | None:
        """None once the prompt is answered or closed. Messages that an earlier task left open are closed."""
        run, session = self.run, self.session
        label = await raise_label(tx, run, session, max(self.label, self.agent.label if self.agent else Label.OWNER))
        if self.asked is None and not await messages.was_asked(tx, session, run.id):
            await messages.close(tx, session)
            prompt = UserText(self.prompt, datetime.now(UTC))
            await messages.say(tx, session, run.principal_id, prompt, label=self.label, origin=self.origin, task=run.id)
        rows = [self._reopened(row) for row in await messages.transcript(tx, session)]
        transcript, files, all_files = await attachments.of_turn(tx, session, rows)
        waiting = [row for row in transcript if row.open]
        if not waiting:
            await tasks.finish(tx, run, Status.COMPLETED)
            return None
        return OpenedTurn(
            opening=self,
            principal=await principals.get(tx, run.principal_id),
            label=label,
            at=None,
            transcript=transcript,
            asked=waiting,
            spent=await _spent(tx, run, session, transcript),
            first_ordinal=await _first_ordinal(tx, run, transcript),
            files=files,
            all_files=all_files,
            history=self.history,
            heartbeat=self.heartbeat,
            private=self.private,
        )

    def _reopened(self, row: MessageRow) -> MessageRow:
        return replace(row, answered_by=None, closed_at=None) if row.id == self.asked else row


async def raise_label(tx: Connection, run: Claim, session: SessionId, label: Label) -> Label:
    """Lock the run's session and trust it no more than `label`. Returns the label it has then; raises `RunLost`."""
    before = await sessions.lock_for(tx, session, run)
    if label > before:
        await sessions.taint(tx, session, label)
    return max(before, label)


async def _first_ordinal(tx: Connection, run: Claim, transcript: Sequence[MessageRow]) -> int:
    """Asks the database only if a summary may hide calls."""
    if any(row.kind == "summary" for row in transcript[:1]):
        return await tool_calls.next_ordinal(tx, run.id)
    return max((row.ordinal + 1 for row in transcript if row.task_id == run.id and row.ordinal is not None), default=0)


async def _spent(tx: Connection, run: Claim, session: SessionId, transcript: Sequence[MessageRow]) -> Spent:
    """Calls, tokens and cost of this turn so far: none unless it stored a row before a crash or a summary."""
    since = None
    if own_turn(transcript, run.id):
        since = await messages.stored_since(tx, session, run.id, turn_after(transcript, run.id))
    if since is None:
        return Spent()
    used = await steps.spent_on(tx, run.id, since)
    return Spent(used.calls, used.tokens_in + used.tokens_out, used.cost_usd)
