"""Messages: the only transcript there is, and the checkpoint a resumed turn starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, Self, assert_never

from asyncpg import Record

from gateway.domain.conversation.model import ProviderFields, ToolCall, Usage
from gateway.domain.conversation.transcript import (
    AssistantText,
    Attached,
    Entry,
    Notice,
    Summary,
    ToolIntent,
    ToolResult,
    UserText,
)
from gateway.domain.ids import AddressId, MemoryId, MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.memory.imports import ORIGIN
from gateway.domain.principals import Label
from gateway.domain.text import marks
from gateway.domain.text.texts import storable
from gateway.domain.text.tokens import estimate
from gateway.domain.work.tasks import Claim
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, fetch_value

EARLIER = "earlier"
"""Origin of texts from before the conversation reached us."""
INSTRUCTIONS = "(Instructions from the client)\n"
"""Prefix of a system message of that origin."""
CLIENT = "client"
"""Origin of calls and results of tools that an API client runs."""
WRITTEN = "written"
"""Origin of calls that the model wrote as text."""

REFERENCE_TOKENS, TEXT_TOKENS = 100, 1_000
"""Tokens that a file takes of a prompt at most: its description, with its text if that is short."""

REVISED, DELETED = "revised", "deleted"
"""Origins of the new text of an edited message, and of the note that one was deleted."""

STOPPED = "[The user stopped this; it needs no answer any more.]"

Kind = Literal["user", "assistant", "tool_intent", "tool_result", "summary", "notice"]
Withdrawn = Literal["edited", "deleted"]


@dataclass(frozen=True)
class MessageRow:
    """One entry of a transcript; `seq` is None while no turn has taken it."""

    id: MessageId
    session_id: SessionId
    principal_id: PrincipalId
    address_id: AddressId | None
    seq: int | None
    kind: Kind
    text: str
    label: Label
    origin: str
    sender: str
    platform_id: str | None
    sent_at: datetime
    solo: bool
    final: bool
    call_id: str | None
    tool: str | None
    task_id: TaskId | None
    ordinal: int | None
    answered_by: MessageId | None
    closed_at: datetime | None
    created_at: datetime
    tokens: int | None
    covers: int | None
    remembered: tuple[MemoryId, ...]
    """The memories that an answer's turn was reminded of, or, where that was asked for, all that it used."""
    model: str | None
    """The model that is asked first for its answer; None: the configured one."""
    unasked: bool | None
    """Whether it is a call that sent or changed something outside without a question."""
    withdrawn: Withdrawn | None
    """How its person withdrew it later: the text is no longer theirs, and no prompt has it."""
    plan_step: int | None
    """The step of its run's plan that a call fills, from 1."""
    attached: tuple[Attached, ...] = ()
    """Its files, where they were asked for: they are rows of their own."""
    models: tuple[str, ...] = ()
    """The model that wrote an answer, if it was queried; `usage` is the total of all its calls."""
    usage: Usage | None = None
    command: str = ""
    """The message that a notice replies to, or the name of the task whose result it is, if that was queried."""
    fields: tuple[str, ...] | None = None
    """Those of its reply that only their provider understands, in the transcript: source, message, each call."""
    thought_ms: int | None = None
    """How long the model thought before it, where that was asked for; None: it didn't, or that is forgotten."""
    thought_shown: bool = False
    """Whether its provider shows what the model thought."""
    doubts: tuple[tuple[str, str], ...] = ()
    """Why it is untrusted, where that was asked for: names, each with the path of its file or ""."""
    version_of: SessionId | None = None
    """The conversation that went on otherwise from here, where that was asked for: a branch begins with this entry."""

    @classmethod
    def of(cls, row: Record) -> Self:
        """From its row; a transcript has hundreds, for which the constructor would take five times as long."""
        made = cls.__new__(cls)
        vars(made).update(row, label=Label(row["label"]), remembered=tuple(row["remembered"]))
        return made

    @property
    def size(self) -> int:
        """Its tokens, estimated."""
        own = estimate(self.text) if self.tokens is None else self.tokens
        own += self.kept.tokens if self.kept else 0
        return own + sum(TEXT_TOKENS if file.text_path else REFERENCE_TOKENS for file in self.attached)

    @property
    def kept(self) -> ProviderFields | None:
        """The fields of its reply that only their provider understands."""
        found = self.fields
        return ProviderFields(found[0], found[1], tuple(found[2:])) if found else None

    @property
    def open(self) -> bool:
        """Whether it still waits for an answer."""
        return self.kind == "user" and self.answered_by is None and self.closed_at is None

    @property
    def stopped(self) -> bool:
        """Whether it was given up without an answer."""
        closed = self.kind == "user" and self.closed_at is not None
        return closed and self.origin not in {EARLIER, REVISED, DELETED} and not self.origin.startswith(ORIGIN)

    @property
    def said_earlier(self) -> bool:
        """Whether a person said it before the conversation reached us; instructions of a client are no such words."""
        return self.kind == "user" and self.origin == EARLIER and not self.text.startswith(INSTRUCTIONS)

    @property
    def handed_back(self) -> bool:
        """Whether a client brought it: the result of its own tool, for the message behind it."""
        return self.kind == "tool_result" and self.origin == CLIENT

    @property
    def ends_turn(self) -> bool:
        """Whether its task answered with it."""
        return self.task_id is not None and (self.kind == "notice" or (self.kind == "assistant" and self.final))

    @cached_property
    def entry(self) -> Entry:
        """As the agent sees it."""
        match self.kind:
            case "user" if self.withdrawn is not None:
                files = self.attached if self.withdrawn == "edited" else ()
                return UserText(marks.WITHDRAWN[self.withdrawn], self.sent_at, self.sender, self.id, files)
            case "user":
                text = f"{self.text}\n{STOPPED}" if self.stopped else self.text
                wordless = self.origin == "api" and not text and not self.attached
                return UserText(text, self.sent_at, self.sender, self.id, self.attached, wordless=wordless)
            case "assistant":
                return AssistantText(self.text, self.final, self.kept)
            case "tool_intent":
                call = ToolCall(self.call_id or "", self.tool or "", self.text, self.origin == WRITTEN)
                return ToolIntent(call, self.ordinal or 0, self.origin == CLIENT, self.kept)
            case "tool_result":
                return ToolResult(self.call_id or "", self.text)
            case "summary":
                return Summary(self.text)
            case "notice":
                return Notice(self.text)
            case _:
                assert_never(self.kind)


async def transcript(conn: Connection, session: SessionId) -> list[MessageRow]:
    """Everything a turn has to know, without what is unread: the last summary, then in order what it does not cover."""
    return await fetch_all(conn, MessageRow, "select t.*, kept_fields(t) as fields from transcript($1) t", session)


async def say(
    conn: Connection,
    session: SessionId,
    principal: PrincipalId,
    entry: AssistantText | Notice | Summary | UserText,
    *,
    label: Label,
    origin: str = "gateway",
    address: AddressId | None = None,
    task: TaskId | None = None,
    covers: int | None = None,
    answers: bool = False,
    remembered: Sequence[MemoryId] = (),
) -> MessageRow:
    """Append one text to the transcript; the caller holds the session. A summary says up to which place it `covers`.

    What a user said waits for an answer if it was said for a `task`. What `answers` does so for every message that the
    turn took.
    """
    text, final = storable(entry.text), not isinstance(entry, AssistantText) or entry.final
    sql = "select * from say($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
    said = (session, principal, address, KINDS[type(entry)], text, label, origin, final)
    return await fetch_one(conn, MessageRow, sql, *said, task, covers, estimate(text), remembered, answers)


KINDS: dict[type[Entry], Kind] = {
    AssistantText: "assistant",
    Notice: "notice",
    Summary: "summary",
    UserText: "user",
}


async def said_by_person(conn: Connection, session: SessionId, own: Label) -> list[str]:
    """Texts trusted this far that turns were asked here, among the newest entries; without imported ones."""
    sql = """select text from (select kind, label, origin, text, withdrawn from messages
                               where session_id = $1 and seq is not null order by seq desc limit 1000) newest
             where kind = 'user' and label <= $2 and origin <> $3 and not starts_with(origin, $4)
               and withdrawn is null"""
    return [row["text"] for row in await conn.fetch(sql, session, own, EARLIER, ORIGIN)]


async def being_answered(conn: Connection, session: SessionId, own: Label) -> list[str]:
    """The messages that the session's turn answers and that a person of this trust level wrote themselves."""
    sql = """select m.text from messages m where m.session_id = $1 and m.kind = 'user' and m.label <= $2
               and m.seq is not null and m.answered_by is null and m.closed_at is null and m.withdrawn is null
               and (select bool_and(i.sender <> '') from inbox i
                    where i.address_id = m.address_id and i.message_id = m.id)"""
    return [row["text"] for row in await conn.fetch(sql, session, own)]


async def was_asked(conn: Connection, session: SessionId, task: TaskId) -> bool:
    """Whether the prompt of a task has been said in its session."""
    sql = "select exists (select from messages where session_id = $1 and task_id = $2 and kind = 'user')"
    return bool(await conn.fetchval(sql, session, task))


async def stored_since(conn: Connection, session: SessionId, task: TaskId, seq: int) -> datetime | None:
    """When a task first stored something behind a place in the transcript, summaries included."""
    sql = "select min(created_at) from messages where session_id = $1 and task_id = $2 and seq > $3"
    at: datetime | None = await conn.fetchval(sql, session, task, seq)
    return at


async def newest_summary(conn: Connection, session: SessionId) -> MessageId | None:
    """The summary the transcript begins with."""
    return await fetch_value(conn, MessageId, "select id from transcript($1) where kind = 'summary'", session)


async def waits(conn: Connection, session: SessionId, address: AddressId) -> bool:
    """Whether something that was said there has no answer yet."""
    sql = """select exists (select from messages where session_id = $1 and address_id = $2 and kind = 'user'
                              and answered_by is null and closed_at is null)"""
    return bool(await conn.fetchval(sql, session, address))


async def close(conn: Connection, session: SessionId) -> int:
    """Give up every message that has no answer; returns how many."""
    sql = """update messages set closed_at = now()
             where session_id = $1 and kind = 'user' and answered_by is null and closed_at is null returning id"""
    return len(await conn.fetch(sql, session))


async def of_task(conn: Connection, run: Claim) -> MessageRow | None:
    """The message that the task of this run is about."""
    sql = "select m.* from tasks t join messages m on m.id = (t.input ->> 'message')::bigint where t.id = $1"
    return await fetch_first(conn, MessageRow, sql, run.id)


async def get(conn: Connection, message: MessageId) -> MessageRow | None:
    """One entry."""
    return await fetch_first(conn, MessageRow, "select * from messages where id = $1", message)


async def shown(conn: Connection, session: SessionId, *, limit: int = 200) -> list[MessageRow]:
    """The newest entries for a screen, oldest first, what is unread at the end."""
    sql = """select * from (
               (select * from messages where session_id = $1 and seq is null order by id desc limit $2)
               union all
               (select m.* from past($1) p cross join lateral (
                  select * from messages where session_id = p.id and seq <= p.until order by seq desc limit $2) m
                order by m.seq desc limit $2)
               limit $2) m
             order by coalesce(seq, 2147483647), id"""
    return await fetch_all(conn, MessageRow, sql, session, limit)


async def said_since(conn: Connection, session: SessionId, seq: int, until: int = 2**31 - 1) -> list[str]:
    """The agent's texts after one place in the transcript and up to another, in order."""
    sql = """select text from messages
             where session_id = $1 and kind = 'assistant' and seq > $2 and seq <= $3 order by seq"""
    return [row["text"] for row in await conn.fetch(sql, session, seq, until)]


async def told_until(conn: Connection, session: SessionId, seq: int = 2**31 - 1) -> list[MessageRow]:
    """All that was said and called up to a place, whatever a summary hides of it."""
    sql = """select m.* from past($1) p join messages m on m.session_id = p.id and m.seq <= least(p.until, $2)
             where m.kind in ('user', 'assistant', 'tool_intent', 'tool_result') order by m.seq"""
    return await fetch_all(conn, MessageRow, sql, session, seq)


async def last_answer(conn: Connection, session: SessionId) -> MessageRow | None:
    """How the latest turn of a session ended: the agent's answer, or the gateway's word that there is none."""
    sql = """select m.* from past($1) p cross join lateral (
               select * from messages
               where session_id = p.id and seq <= p.until
                 and ((kind = 'assistant' and final) or (kind = 'notice' and task_id is not null))
               order by seq desc limit 1) m
             order by m.seq desc limit 1"""
    return await fetch_first(conn, MessageRow, sql, session)


async def asked_at(conn: Connection, answer: MessageId) -> datetime:
    """When the first message that this answer answers was stored; the answer's own time if it answers none."""
    sql = "select min(created_at) from messages where answered_by = $1 or id = $1"
    at: datetime = await conn.fetchval(sql, answer)
    return at


async def said_at(conn: Connection, session: SessionId, task: TaskId, ordinal: int) -> datetime | None:
    """When the newest of the user's messages that a tool call could know was sent, however late the call runs."""
    sql = """select sent_at from messages where session_id = $1 and kind = 'user' and seq < coalesce((
               select seq from messages where task_id = $2 and ordinal = $3 and kind = 'tool_intent'), 2147483647)
             order by seq desc limit 1"""
    at: datetime | None = await conn.fetchval(sql, session, task, ordinal)
    return at


async def sources_of_call(conn: Connection, session: SessionId, task: TaskId, ordinal: int) -> list[MessageId]:
    """The messages that the turn of a tool call was answering when it asked for the call, however late the call runs.

    For a call without an entry in a transcript: those that are open now.
    """
    sql = """with call as (select seq from messages where task_id = $2 and ordinal = $3 and kind = 'tool_intent')
             select id from (
               select id, seq from messages
               where session_id = $1 and kind = 'user' and answered_by is null and closed_at is null
               union all
               select u.id, u.seq from call join messages a on a.session_id = $1 and a.seq > call.seq
               join messages u on u.answered_by = a.id) asked
             where seq < coalesce((select seq from call), 2147483647) order by seq"""
    return [row["id"] for row in await conn.fetch(sql, session, task, ordinal)]


async def last_id(conn: Connection) -> MessageId | None:
    """The newest entry of all transcripts."""
    return await fetch_value(conn, MessageId, "select max(id) from messages")
