"""Open a turn: take the unread messages, and learn from the rows where an interrupted one stopped."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gateway.agent.conversation.compaction import own_turn, turn_after
from gateway.agent.conversation.context import LISTED_FILES
from gateway.agent.limits import Spent
from gateway.agent.memory.search import Recalled
from gateway.domain.conversation.inbound import NO_OPTIONS, PROGRAMS, ClientOptions
from gateway.domain.conversation.tools import Caller
from gateway.domain.conversation.transcript import Attached, ToolIntent, UserText
from gateway.domain.ids import MessageId, SessionId, TaskId
from gateway.domain.principals import Label, Principal
from gateway.domain.work.tasks import Claim, Status
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.files import attachments
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions, tool_calls, unread
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import steps, tasks


@dataclass(frozen=True, slots=True)
class Reminder:
    """What memory tells a turn unasked: `standing` for the whole session, `recalled` before the newest messages."""

    standing: str = ""
    recalled: Recalled = field(default_factory=Recalled)


@dataclass(frozen=True, slots=True)
class AgentPart:
    """What a node of a task tree adds to a turn: its agent's prompt, tools and money.

    `tools` are the only ones it has; None: all but those that start trees. Without `all_skills` the index of skills is
    not shown. `usd` is what one run may cost, None as configured.
    """

    prompt: str
    tools: frozenset[str] | None
    all_skills: bool
    usd: float | None
    fork: TaskId | None = None
    """The fork that it belongs to."""


@dataclass(frozen=True, slots=True)
class OpenedTurn:
    """What a turn starts from; all of it is in the database."""

    session: SessionId
    principal: Principal
    label: Label
    at: AddressRow | None
    """Where the answer goes; None where nobody waits for one."""
    transcript: Sequence[MessageRow]
    asked: Sequence[MessageRow]
    spent: Spent
    again: "Callable[[Connection], Awaitable[OpenedTurn | None]]"
    """Reads it once more, as the rows are now."""
    first_ordinal: int
    """The first free key for a tool call of its task."""
    files: Sequence[Attached] = ()
    """Those of the conversation, the newest `LISTED`, out of `all_files`."""
    all_files: int = 0
    history: Sequence[MessageRow] = ()
    """Of another conversation, shown before its own."""
    heartbeat: bool = False
    private: bool = True
    """Whether it may use memory: not where another program asks, by a token or a trigger."""
    reminder: Reminder = field(default_factory=Reminder)
    client: ClientOptions = NO_OPTIONS
    """What the program that asks brought along."""
    agent: AgentPart | None = None
    """None where the agent is the one that people chat with."""

    @property
    def solo(self) -> bool:
        """Whether it answers exactly one message."""
        return any(row.solo for row in self.asked)

    @property
    def asked_ids(self) -> tuple[MessageId, ...]:
        """The messages it answers so far."""
        return tuple(row.id for row in self.asked)

    def caller(self, run: Claim, fence: Callable[[], Awaitable[None]]) -> Caller:
        """Who the tools are called by."""
        return Caller(run.id, self.first_ordinal, self.session, self.at.id if self.at else None, self.label, fence)

    def pending(self, run: Claim) -> tuple[ToolIntent, ...]:
        """Calls of this turn that a crash left without a result."""
        rows = own_turn(self.transcript, run.id)
        done = {row.ordinal for row in rows if row.kind == "tool_result"}
        return tuple(entry for row in rows if isinstance(entry := row.entry, ToolIntent) and entry.ordinal not in done)


@dataclass(frozen=True, slots=True)
class OpenedChat(OpenedTurn):
    """A turn of a chat."""

    at: AddressRow


async def open_turn(tx: Connection, run: Claim) -> OpenedChat | None:
    """Take the unread messages whose files are in; None if there are none: the task ends or waits. Raises `RunLost`."""
    assert run.session_id is not None, "a chat task has a session"
    label = await sessions.lock_for(tx, run.session_id, run)
    rows = await messages.transcript(tx, run.session_id) if run.suspect else []
    if not any(row.open for row in rows):  # what came later is not given up together with a message that kills
        await unread.take(tx, run.session_id, joining=False)
        rows = await messages.transcript(tx, run.session_id)
    if not any(row.open for row in rows) and await unread.left(tx, run.session_id):
        # Its files are being fetched: the job that does it hastens this task, which keeps no slot meanwhile.
        await tasks.renew(tx, run, delay=await unread.patience(tx, run.session_id))
        return None
    transcript, files, all_files = await attachments.of_turn(tx, run.session_id, rows, LISTED_FILES)
    asked = [row for row in transcript if row.open]
    if not asked:
        await tasks.finish(tx, run, Status.COMPLETED)
        return None
    last = asked[-1]
    assert last.address_id is not None, "what a person said came from somewhere"
    at = await addresses.get(tx, last.address_id)
    private, client = True, None
    if at.channel in PROGRAMS:
        as_owner, client = await inbox.client_input(tx, at.address, [row.platform_id for row in asked])
        private = as_owner or not at.address.by_token
    return OpenedChat(
        session=run.session_id,
        principal=await principals.get(tx, run.principal_id),
        label=label,
        at=at,
        transcript=transcript,
        asked=asked,
        again=lambda tx: open_turn(tx, run),
        spent=await _spent(tx, run, run.session_id, transcript),
        first_ordinal=await _first_ordinal(tx, run, transcript),
        files=files,
        all_files=all_files,
        private=private,
        client=ClientOptions.of(client),
    )


async def open_unattended(
    tx: Connection,
    run: Claim,
    prompt: str,
    *,
    label: Label,
    origin: str,
    at: AddressRow | None = None,
    history: Sequence[MessageRow] = (),
    heartbeat: bool = False,
    private: bool = False,
    asked: MessageId | None = None,
) -> OpenedTurn | None:
    """Store the prompt, once, in the session of an unattended run; raises `RunLost`.

    A fork's prompt is there already, as `asked`, and waits for an answer again. None if the prompt has been answered
    or closed: the task ends. What an earlier task left open is closed.
    """
    assert run.session_id is not None, "a task that asks a model has a session"
    await sessions.lock_for(tx, run.session_id, run)
    await sessions.taint(tx, run.session_id, label)
    if asked is None and not await messages.was_asked(tx, run.session_id, run.id):
        await messages.close(tx, run.session_id)
        said = UserText(prompt, datetime.now(UTC))
        await messages.say(tx, run.session_id, run.principal_id, said, label=label, origin=origin, task=run.id)
    rows = [_reopened(row, asked) for row in await messages.transcript(tx, run.session_id)]
    transcript, files, all_files = await attachments.of_turn(tx, run.session_id, rows, LISTED_FILES)
    waiting = [row for row in transcript if row.open]
    if not waiting:
        await tasks.finish(tx, run, Status.COMPLETED)
        return None

    return OpenedTurn(
        session=run.session_id,
        principal=await principals.get(tx, run.principal_id),
        label=await sessions.label(tx, run.session_id),
        at=at,
        transcript=transcript,
        asked=waiting,
        again=lambda tx: open_unattended(
            tx,
            run,
            prompt,
            label=label,
            origin=origin,
            at=at,
            history=history,
            heartbeat=heartbeat,
            private=private,
            asked=asked,
        ),
        spent=await _spent(tx, run, run.session_id, transcript),
        first_ordinal=await _first_ordinal(tx, run, transcript),
        files=files,
        all_files=all_files,
        history=history,
        heartbeat=heartbeat,
        private=private,
    )


def _reopened(row: MessageRow, asked: MessageId | None) -> MessageRow:
    return replace(row, answered_by=None, closed_at=None) if row.id == asked else row


async def _first_ordinal(tx: Connection, run: Claim, transcript: Sequence[MessageRow]) -> int:
    """The first free key for a tool call; the database is asked only where a summary may hide some."""
    if any(row.kind == "summary" for row in transcript[:1]):
        return await tool_calls.next_ordinal(tx, run.id)
    return max((row.ordinal + 1 for row in transcript if row.task_id == run.id and row.ordinal is not None), default=0)


async def _spent(tx: Connection, run: Claim, session: SessionId, transcript: Sequence[MessageRow]) -> Spent:
    """What this turn has used so far, before a crash or for its summary: nothing, unless it stored something."""
    since = None
    if own_turn(transcript, run.id):
        since = await messages.stored_since(tx, session, run.id, turn_after(transcript, run.id))
    if since is None:
        return Spent()
    used = await steps.spent_on(tx, run.id, since)
    return Spent(used.calls, used.tokens_in + used.tokens_out, used.cost_usd)
