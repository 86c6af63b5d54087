"""Slash commands, one per file, named after the module; `command` in the module defines it.

A command runs in the transaction that also commits its reply. It reads and writes through `CommandContext.tx`, and
never waits for a model, a platform or a running turn.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, assert_never

from gateway.agent.conversation.branches import close_journal
from gateway.agent.exec.processes import Processes
from gateway.agent.limits import Limits
from gateway.config.model import VoiceSettings
from gateway.config.plugins import offers
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.health import Vitals
from gateway.domain.ids import MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.people.credentials import CodeRefusal
from gateway.domain.principals import Label, Role, label_of
from gateway.domain.time import Clock
from gateway.llm.client import Description
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.inbox import InboxRow
from gateway.store.transcript import conversations, messages, sessions
from gateway.store.trust.reviews import ReviewQuestion, ReviewRow, ask, mark_told
from gateway.store.trust.reviews import close as close_questions  # `reviews` is also a command in this folder
from gateway.store.work.tasks import cancel, live_chat

DEFAULT = "default"
"""Chooses what is configured."""
_NUMBERED = re.compile(r"#(\d{1,18})(?!\S)\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandServices:
    """The parts of the running gateway that commands may use."""

    models: Callable[[], Description]
    chosen_model: Callable[[AddressRow, bool], str | None]
    """The model chosen for a chat, of the owner or not, while that choice counts."""
    voice: Callable[[], VoiceSettings]
    limits: Callable[[], Limits]
    vitals: Callable[[], Vitals]
    sign_in_link: Callable[[], str | None]
    """Creates a sign-in link to the page; None if the page has no public address."""
    secret_link: Callable[[PrincipalId, str], str | None]
    """Creates a link to the form for a person's own secret; None if the page has no public address."""
    note_zone: Callable[[PrincipalId, str, Label], Awaitable[str | None]]
    """Writes a person's time zone into their USER.md and returns the zone in effect; raises `ValueError`."""
    zone_of: Callable[[PrincipalId], str | None]
    """Returns a person's time zone, None while it is unknown."""
    processes: Processes
    """The owner's processes, which continue between turns."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A message that is a command, and the services for it; the address and its session are locked."""

    tx: Connection
    at: AddressRow
    role: Role
    argument: str
    arrival: InboxRow
    clock: Clock
    started_at: datetime
    commands: "Mapping[str, Command]"
    services: CommandServices
    written: str
    """The unfinished text of the running turn, if it runs in this process."""

    @property
    def chosen_model(self) -> str | None:
        """The model chosen for this chat; None: the configured one, as when the choice has ended."""
        return self.services.chosen_model(self.at, self.role is Role.OWNER)

    @property
    def label(self) -> Label:
        """How far the words of this message are trusted."""
        return label_of(self.role, private=self.at.private, as_owner=self.arrival.as_owner)


@dataclass(frozen=True, slots=True)
class CommandReply:
    """The reply, and the effects to apply to this process after the commit."""

    text: str = ""
    cancelled: tuple[TaskId, ...] = ()
    successor: SessionId | None = None
    unfinished: AssistantText | None = None
    """The agent's text until it was stopped, sent before the reply."""
    admission: bool = False
    """Whether access rights have changed."""
    secret: str = ""
    """A text sent below the reply to this chat only; the transcript, which the agent reads, doesn't contain it."""
    question: ReviewRow | None = None
    """A question to show with its buttons, in place of a text."""
    asked: MessageId | None = None
    """A message in the new session that is to be answered; then there is no reply."""
    ends_processes: bool = False
    """Whether to end the session's processes."""


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command."""

    name: str
    summary: str
    run: Callable[[CommandContext], Awaitable[CommandReply]]
    owner_only: bool = False
    """Whether the command is hidden and ignored for others and in groups."""
    tokens: Literal["none", "as owner", "any"] = "none"
    """The API tokens that may run it; people's own accounts, the page and the local terminal may always run it."""
    refusals: tuple[type[Exception], ...] = ()
    """The errors of `run` whose text is the reply."""

    def allows(self, ctx: CommandContext) -> bool:
        """Whether the sender may run it here."""
        if self.owner_only and ctx.role is not Role.OWNER:
            return False
        match self.tokens:
            case "any":
                return True
            case "as owner":
                return ctx.arrival.as_owner
            case "none":
                return ctx.arrival.as_owner and not ctx.at.address.by_token
            case _:
                assert_never(self.tokens)


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of ending a session: its cancelled runs, the number of unanswered messages, the closed approvals."""

    cancelled: tuple[TaskId, ...]
    unanswered: int
    approvals: tuple[str, ...]

    def __str__(self) -> str:
        many = "s" * (self.unanswered != 1)
        left = f" {self.unanswered} unanswered message{many} from the old one won't be answered."
        return (left if self.unanswered else "") + closed_approvals(self.approvals)


async def asking(ctx: CommandContext, question: ReviewQuestion) -> CommandReply:
    """The reply that puts a question about this chat to its person."""
    review = await ask(ctx.tx, replace(question, session=ctx.at.session_id, address=ctx.at.id), ctx.clock.now())
    await mark_told(ctx.tx, review.id)
    return CommandReply(question=review)


def closed_approvals(names: Sequence[str]) -> str:
    """The end of a reply whose command closed these approvals; empty if there are none."""
    return f" {', '.join(names)} {'is' if len(names) == 1 else 'are'} closed." if names else ""


async def end_session(tx: Connection, session: SessionId) -> Ended:
    """Cancel a session's runs, close its messages, approvals and journal, and queue its summary, or delete a temporary
    chat.

    The caller has locked the session.
    """
    task = await live_chat(tx, session)
    cancelled = await cancel(tx, task) if task else []
    closed = await messages.close(tx, session)
    if await addresses.is_temporary(tx, session):
        await conversations.hide(tx, session)
    else:
        await close_journal(tx, await sessions.end_chat(tx, session), session)
    return Ended(tuple(cancelled), closed, tuple(await close_questions(tx, session)))


async def replace_session(
    tx: Connection, principal: PrincipalId, session: SessionId, label: Label
) -> tuple[Ended, SessionId]:
    """End a session and begin another in all of its chats; the caller has locked both."""
    ended, successor = await end_session(tx, session), await sessions.start(tx, principal, label)
    await addresses.move(tx, session, successor)
    return ended, successor


def numbered(argument: str) -> tuple[MessageId | None, str]:
    """The message that an argument such as `#17 new words` names, if any, and the rest of the argument."""
    found = _NUMBERED.match(argument)
    return (MessageId(int(found[1])), argument[found.end() :]) if found else (None, argument)


def decided(outcome: object, words: str) -> CommandReply:
    """The reply to a decision about access: `words` with its outcome, or why a code was refused."""
    if isinstance(outcome, CodeRefusal):
        return CommandReply(outcome)
    return CommandReply(words.format(outcome), admission=True)


def discover() -> dict[str, Command]:
    """All commands, by name; raises `OwnerMustAct` for a file that does not define one."""
    return {command.name: command for _, command in offers(__name__, "command", Command)}
