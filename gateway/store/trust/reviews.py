"""Questions to people: a call that waits for a yes, bound to the exact change."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal

from pydantic import TypeAdapter

from gateway.domain.conversation.tools import ToolClass
from gateway.domain.ids import AddressId, GrantId, PrincipalId, ReviewId, SessionId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.work.plans import PLANNED_CALLS, AskedCall
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one
from gateway.store.trust import audit
from gateway.store.trust.audit import Event
from gateway.store.work import steps, tasks, trees

LASTS = timedelta(minutes=15)
AGAIN = timedelta(hours=1)
"""How long a question that was denied or expired counts against those of the same conversation, schedule or trigger."""
FREE_QUESTION = "request_human_review"
"""The question that a task asks in words."""
BUDGET = "task_budget"
"""The question of a tree whose budget is used up."""
DOUBT = "call_in_doubt"
"""The question of a task whose call may have run before a crash."""
EXPORT_MINE, ERASE_MINE = "export_my_data", "erase_my_data"
"""The calls that a member asks for with /mydata."""
ERASE_MEMBER = "erase_member"
"""The question to the owner that follows from the latter."""
_NUMBER = re.compile(r"[Aa]?(\d{1,18})", re.ASCII)

State = Literal["open", "approved", "done", "denied", "expired", "closed"]


@dataclass(frozen=True, slots=True)
class ReviewQuestion:
    """A call that needs `asked`'s yes; `lasts` is how long the question stays open, None forever.

    With a `grant` the yes was given before: the call runs, and nobody is asked.
    """

    principal: PrincipalId
    asked: PrincipalId
    tool: str
    arguments: JsonObject
    preview: str
    label: Label
    base: str = ""
    session: SessionId | None = None
    address: AddressId | None = None
    task: TaskId | None = None
    ordinal: int | None = None
    lasts: timedelta | None = LASTS
    act: ToolClass = field(kw_only=True)
    grant: GrantId | None = None
    kind: Literal["approval", "review"] = "approval"

    @property
    def digest(self) -> str:
        """The hash that the yes is bound to."""
        return digest_of(self.tool, self.arguments, self.base, self.session)


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """A question as stored; people know it as `name`."""

    id: ReviewId
    kind: Literal["approval", "review"]
    principal_id: PrincipalId
    asked_id: PrincipalId
    session_id: SessionId | None
    address_id: AddressId | None
    task_id: TaskId | None
    ordinal: int | None
    tool: str
    arguments: JsonObject
    base: str
    digest: str
    preview: str
    label: Label
    state: State
    decided_by: str | None
    decided_at: datetime | None
    started_at: datetime | None
    expires_at: datetime | None
    created_at: datetime
    act: ToolClass
    grant_id: GrantId | None
    response: JsonObject | None
    """The answer to a `review`."""

    @property
    def name(self) -> str:
        """Such as A17."""
        return f"A{self.id}"

    @property
    def calls(self) -> Sequence[AskedCall]:
        """The calls that a yes runs, in order."""
        if self.tool == PLANNED_CALLS:
            return TypeAdapter(list[AskedCall]).validate_python(self.arguments["calls"])
        return [AskedCall(0, self.tool, self.arguments, self.act, self.base)]

    @property
    def title(self) -> str:
        """Name of the call, or of a task's question, for people."""
        if self.tool == DOUBT:
            return f"{self.arguments['tool']}, which may have run"
        return {FREE_QUESTION: "question of a task", BUDGET: "more budget"}.get(self.tool, self.tool)


def digest_of(tool: str, arguments: JsonObject, base: str, session: SessionId | None) -> str:
    """A hash of everything that a yes is bound to; `base` stands for the contents of files."""
    where = [str(session)] if session else []
    exact = json.dumps([tool, arguments, base, *where], sort_keys=True, separators=(",", ":"))
    return sha256(exact.encode()).hexdigest()


def number(text: str) -> ReviewId | None:
    """The id in a name like A17; None if the text is none."""
    match = _NUMBER.fullmatch(text.strip())
    return ReviewId(int(match[1])) if match else None


async def was_asked(conn: Connection, question: ReviewQuestion) -> bool:
    """Whether the person has been asked for all of this before, perhaps together with more."""
    sql = """select exists (select from reviews where (principal_id, asked_id, tool) = ($1, $2, $3)
                                                  and arguments @> $4::jsonb)"""
    return bool(await conn.fetchval(sql, question.principal, question.asked, question.tool, question.arguments))


async def ask(conn: Connection, question: ReviewQuestion, now: datetime) -> ReviewRow:
    """Store a question, once for each tool call; the gateway puts it to the person after the commit.

    One under a grant is answered with this: its call is queued.
    """
    sql = """insert into reviews (kind, principal_id, asked_id, session_id, address_id, task_id, ordinal, tool,
                                  arguments, base, digest, preview, label, expires_at, act, grant_id, state, decided_by,
                                  decided_at, told_at)
             values ($19, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $18)
             on conflict (task_id, ordinal) where task_id is not null do nothing returning *"""
    whose = (question.principal, question.asked, question.session, question.address, question.task, question.ordinal)
    what = (question.tool, question.arguments, question.base, question.digest, question.preview, question.label)
    until = None if question.lasts is None else now + question.lasts
    state = ("open", None, None) if question.grant is None else ("approved", f"grant:G{question.grant}", now)
    values = (*whose, *what, until, question.act, question.grant, *state, question.kind)
    review = await fetch_first(conn, ReviewRow, sql, *values)
    if review is None:  # only a call is met again
        return (await of_calls(conn, question.task, [question.ordinal]))[0]
    if review.kind == "review" and review.task_id is not None:
        await steps.note(conn, review.task_id, review.principal_id, "review", review.name)
    if question.grant is not None:
        await _act_on(conn, review)
    await _note(conn, Event.ASKED, review)
    if question.grant is not None:
        await _note(conn, Event.APPROVED, review)
    return review


async def of_calls(conn: Connection, task: TaskId | None, ordinals: Sequence[int | None]) -> list[ReviewRow]:
    """The questions that these calls have asked already, in their order: a resumed run makes a call again."""
    sql = "select * from reviews where task_id = $1 and ordinal = any($2) order by ordinal"
    return await fetch_all(conn, ReviewRow, sql, task, ordinals)


async def lock(conn: Connection, review: ReviewId) -> ReviewRow:
    """A question as it is now; nobody answers it until the transaction ends."""
    return await fetch_one(conn, ReviewRow, "select * from reviews where id = $1 for update", review)


async def lock_to_answer(conn: Connection, reviews: Sequence[ReviewId]) -> None:
    """Lock these questions, after the trees of their tasks: from the top, and before any question, as by a cancel."""
    sql = """select from tasks where master_id in (
               select t.master_id from reviews r join tasks t on t.id = r.task_id where r.id = any($1))
             order by depth, id for update"""
    await conn.execute(sql, reviews)
    await conn.execute("select from reviews where id = any($1) order by id for update", reviews)


async def hold(conn: Connection, asked: PrincipalId) -> None:
    """Until the transaction ends nobody else asks this person something."""
    await lock_name(conn, f"supaclaw.reviews {asked}")


async def asked_before(conn: Connection, question: ReviewQuestion, now: datetime) -> ReviewRow | None:
    """The same call, asked about in the same session lately, alone or in a plan, unless it has run or its time is up.

    A no holds whatever has become of the contents that it works on: another change would be an endless new question.
    """
    sql = """select * from reviews where session_id = $1 and asked_id = $3 and created_at > $4
               and (state in ('approved', 'denied') or state = 'open' and (expires_at is null or expires_at > $5))
               and (digest = $2 or state = 'denied' and (tool, arguments) = ($6, $7::jsonb)
                 or case tool when $8 then exists (
                      select from jsonb_array_elements(arguments -> 'calls') c
                      where (c ->> 'tool', c -> 'arguments') = ($6, $7::jsonb)) end)
             order by id desc limit 1"""
    key = question.session, question.digest, question.asked, now - LASTS, now
    return await fetch_first(conn, ReviewRow, sql, *key, question.tool, question.arguments, PLANNED_CALLS)


async def list_open(conn: Connection, asked: PrincipalId, now: datetime) -> list[ReviewRow]:
    """This person's open questions, the oldest first."""
    sql = """select * from reviews where asked_id = $1 and state = 'open' and (expires_at is null or expires_at > $2)
             order by id"""
    return await fetch_all(conn, ReviewRow, sql, asked, now)


async def list_counted(conn: Connection, question: ReviewQuestion, now: datetime) -> list[tuple[str, bool]]:
    """The questions to the same person that count against this one, and whether they are of the same source.

    For a chat's turn: those open in its conversation. For an unattended run: those of all unattended runs that are
    open, and those of its own conversation, schedule or trigger that were denied or expired in the last hour.
    """
    sql = """with asked as (
               select r.*, coalesce(r.session_id = $2 or t.input ->> 'origin' = run.input ->> 'origin'
                                    and t.input ->> 'name' = run.input ->> 'name', false) as same
               from reviews r join tasks t on t.id = r.task_id left join tasks run on run.id = $3
               where r.asked_id = $1 and r.kind = 'approval' and (r.address_id is null) = $4)
             select 'A' || id as name, same from asked
             where (same or $4) and (state = 'open' and (expires_at is null or expires_at > $5)
                                     or same and $4 and state in ('denied', 'expired') and created_at > $6)
             order by id"""
    values = (question.asked, question.session, question.task, question.address is None, now, now - AGAIN)
    return [(row["name"], row["same"]) for row in await conn.fetch(sql, *values)]


async def get(conn: Connection, review: ReviewId) -> ReviewRow | None:
    """One question."""
    return await fetch_first(conn, ReviewRow, "select * from reviews where id = $1", review)


async def list_untold(conn: Connection, most: int) -> list[ReviewRow]:
    """Open questions to show now: all of the agent's, and of the gateway's own until a person sees `most`."""
    sql = """select * from reviews r where state = 'open' and told_at is null and (task_id is not null or $1 > (
               select count(*) from reviews o where o.asked_id = r.asked_id and o.state = 'open'
                 and (o.told_at is not null or o.id < r.id)))
             order by id"""
    return await fetch_all(conn, ReviewRow, sql, most)


async def unanswered(conn: Connection, told_before: datetime) -> ReviewRow | None:
    """The oldest question of a task that its person was last shown before then."""
    sql = """select * from reviews where state = 'open' and kind = 'review' and coalesce(reminded_at, told_at) < $1
             order by id limit 1"""
    return await fetch_first(conn, ReviewRow, sql, told_before)


async def mark_reminded(conn: Connection, review: ReviewId, told_before: datetime) -> bool:
    """It is shown again with this transaction; False if it was meanwhile, or is open no more."""
    sql = """update reviews set reminded_at = now()
             where id = $1 and state = 'open' and coalesce(reminded_at, told_at) < $2 returning true"""
    return bool(await conn.fetchval(sql, review, told_before))


async def mark_told(conn: Connection, review: ReviewId) -> bool:
    """Its question is on its way with this transaction; False if it was before, or is open no more."""
    sql = "update reviews set told_at = now() where id = $1 and state = 'open' and told_at is null returning true"
    return bool(await conn.fetchval(sql, review))


async def decide(
    conn: Connection,
    review: ReviewId,
    asked: PrincipalId,
    now: datetime,
    *,
    yes: bool,
    by: str,
    label: Label,
    comment: str = "",
) -> ReviewRow | None:
    """Take the answer of the person who was asked, once, and queue what follows from it; None if it comes too late.

    A `comment` is kept with the answer to a `review`; its `label` is another than the person's if a program gives it.
    """
    sql = """update reviews set
               state = case when $4 then 'approved' else 'denied' end, decided_by = $5, decided_at = $3,
               response = case kind when 'review' then jsonb_strip_nulls(
                 jsonb_build_object('approved', $4::bool, 'comment', $6::text, 'label', nullif($7::int, 0))) end
             where id = any($1) and asked_id = $2 and state = 'open' and (expires_at is null or expires_at > $3)
             returning *"""
    rows = await _settle(conn, [review], sql, asked, now, yes, by, storable(comment), label)
    return rows[0] if rows else None


async def expire(conn: Connection, now: datetime) -> datetime | None:
    """Close questions that have expired, and act on it; returns when the next one expires."""
    await _end(conn, "expired", "select id from reviews where state = 'open' and expires_at <= $1", now)
    due: datetime | None = await conn.fetchval("select min(expires_at) from reviews where state = 'open'")
    return due


async def close(
    conn: Connection, *sessions: SessionId, calls: Sequence[str] = (), of_trees: Sequence[TaskId] = ()
) -> list[str]:
    """Close the open questions of these sessions, calls (task/ordinal) and trees of tasks; returns their names."""
    sql = """select id from reviews
             where state = 'open' and (session_id = any($1) or task_id || '/' || ordinal = any($2)
               or (kind = 'approval' or tool = 'request_human_review')
                  and task_id in (select id from tasks where master_id = any($3)))"""
    return [row.name for row in await _end(conn, "closed", sql, sessions, calls, of_trees)]


async def latest(conn: Connection, asked: PrincipalId, limit: int) -> list[ReviewRow]:
    """Settled questions to this person, the newest first, answered or not."""
    sql = "select * from reviews where asked_id = $1 and state <> 'open' order by id desc limit $2"
    return await fetch_all(conn, ReviewRow, sql, asked, limit)


async def askers(conn: Connection, rows: Sequence[ReviewRow]) -> dict[ReviewId, str]:
    """The channel of the conversation that each was asked in, by number; none for what nobody watched."""
    sql = "select r.id, a.channel from reviews r join addresses a on a.id = r.address_id where r.id = any($1)"
    return {row["id"]: row["channel"] for row in await conn.fetch(sql, [row.id for row in rows])}


async def reopen(conn: Connection, row: ReviewRow, expires_at: datetime) -> ReviewRow:
    """Ask anew, under the same name: the answer of before was used up."""
    sql = """update reviews set state = 'open', expires_at = $2, response = null, decided_by = null, decided_at = null,
               started_at = null, told_at = null, reminded_at = null where id = $1 returning *"""
    again = await fetch_one(conn, ReviewRow, sql, row.id, expires_at)
    if again.task_id is not None:
        await steps.note(conn, again.task_id, again.principal_id, "review", again.name)
    await _note(conn, Event.ASKED, again)
    return again


async def start(conn: Connection, review: ReviewId) -> tuple[ReviewRow, bool]:
    """Note that its call begins to run; whether it had begun before."""
    before = await fetch_one(conn, ReviewRow, "select * from reviews where id = $1", review)
    await conn.execute("update reviews set started_at = coalesce(started_at, now()) where id = $1", review)
    return before, before.started_at is not None


async def mark_done(conn: Connection, review: ReviewRow) -> None:
    """Record that its call has run; its result is delivered with this transaction."""
    await conn.execute("update reviews set state = 'done' where id = $1", review.id)
    await _note(conn, Event.RUN, review)


async def _end(conn: Connection, state: State, which: str, *values: object) -> list[ReviewRow]:
    """Close the questions that this query finds, without an answer."""
    found = [ReviewId(row["id"]) for row in await conn.fetch(which, *values)]
    sql = """update reviews set state = $2, decided_at = case $2 when 'closed' then now() end
             where id = any($1) and state = 'open' returning *"""
    return await _settle(conn, found, sql, state) if found else []


async def _settle(conn: Connection, reviews: Sequence[ReviewId], sql: str, *values: object) -> list[ReviewRow]:
    """Answer or close these; acts on all before the first is noted, as the audit's lock is a transaction's last."""
    await lock_to_answer(conn, reviews)
    rows = await fetch_all(conn, ReviewRow, sql, reviews, *values)
    for row in rows:
        await _act_on(conn, row)
    for row in rows:
        await _note(conn, Event(f"approval {row.state}"), row)
    return rows


async def _act_on(conn: Connection, row: ReviewRow) -> None:
    """Queue the call; or let the task continue, for more budget its whole tree, unless it ended and was cleared."""
    if row.kind == "approval":
        about, dedupe = {"review": row.id}, f"approval:{row.id}"
        await tasks.create(conn, row.principal_id, "approval", Lane.AGENTS, payload=about, dedupe=dedupe, priority=1)
    elif row.task_id is not None and await tasks.get(conn, row.task_id) is not None:
        await steps.note(conn, row.task_id, row.principal_id, "review", row.name, ok=row.state == "approved")
        if row.tool == BUDGET and row.state == "approved":
            master = await trees.master_of(conn, row.task_id)
            await trees.raise_budget(conn, master, float(str(row.arguments["usd"])))
        await trees.resume(conn, row.task_id, tree=row.tool == BUDGET)


async def close_cancelled(conn: Connection, master: TaskId) -> None:
    """Close the open questions of a tree's cancelled tasks."""
    sql = """update reviews r set state = 'closed', decided_at = now() from tasks t
             where t.id = r.task_id and t.master_id = $1 and t.status = 'cancelled' and r.state = 'open'
             returning r.*"""
    for row in await fetch_all(conn, ReviewRow, sql, master):
        await _note(conn, Event.CLOSED, row)


async def of_tree(conn: Connection, master: TaskId, tool: str) -> ReviewRow | None:
    """The latest question of this kind that a tree has asked; nobody answers it until the transaction ends."""
    sql = """select r.* from reviews r join tasks t on t.id = r.task_id
             where t.master_id = $1 and r.kind = 'review' and r.tool = $2 order by r.id desc limit 1 for update of r"""
    return await fetch_first(conn, ReviewRow, sql, master, tool)


async def _note(conn: Connection, event: Event, row: ReviewRow) -> None:
    by = "" if event in (Event.ASKED, Event.RUN) else row.decided_by or ""
    await audit.note(conn, event, row.name, principal=row.principal_id, by=by, detail=row.digest)
