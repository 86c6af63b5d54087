"""What was acknowledged, what was shown, and whether the one follows from the other: the same count for every fault."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import asyncpg

from channels.telegram.markdown import to_html, visible
from gateway.flow.inbound.spool import SAVED_NOTICE
from tests.chaos.people import Completed, Message
from tests.fakes.openai_server import MARKER
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import GatewayProcess

INTERRUPTED = "I was restarted while sending my last answer; /last shows it again."
UNCONFIRMED = "I couldn't confirm that my last answer arrived; /last shows it again."
TOLD = (INTERRUPTED, UNCONFIRMED)
GIVEN_UP = re.compile(r"attempts failed|No model could answer")
ANSWER = re.compile(r"fin(\d+)x")
SPOOLED_SECONDS = 1.2
"""How long a message may be in the journal alone although the database is back."""


Part: TypeAlias = Mapping[str, Any]
"""An outbox row with its chat; its text is what a reader sees of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The count over one fault. `lost`: acknowledged, and neither answered nor told. `duplicated`: shown twice."""

    tries: int = 1
    acknowledged: int = 0
    lost: tuple[str, ...] = ()
    duplicated: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    """What else must not be: holes in a transcript, calls without their result, tasks that live on."""
    given_up: int = 0
    recovery: tuple[float, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.broken)

    def told(self) -> str:
        """What to say when it is not clean."""
        return f"lost {self.lost[:9]}, duplicated {self.duplicated[:9]}, broken {self.broken[:9]}"


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database says in the end."""

    users: Sequence[asyncpg.Record]
    commands: Mapping[str, asyncpg.Record]
    parts: Sequence[Part]
    broken: tuple[str, ...]


@dataclass
class Ledger:
    """Everything that was said, to be compared with everything that was seen once all is `settled`."""

    process: GatewayProcess
    telegram: FakeTelegram | None = None
    recovery: list[float] = field(default_factory=list)

    async def settled(self, seconds: float = 30.0) -> bool:
        """Whether nothing is open any more, within so many seconds; what is only in the journal comes in meanwhile."""
        end, since = time.monotonic() + seconds, None
        while time.monotonic() < end:
            if (self.telegram is not None and self.telegram.pending) or await self._open():
                since = None
            elif (since := since or time.monotonic()) < time.monotonic() - SPOOLED_SECONDS:
                return True
            await asyncio.sleep(0.1)
        return False

    async def count(self, said: Iterable[Message] = (), completed: Iterable[Completed] = (), tries: int = 1) -> Outcome:
        """Compare; what the platform has not been told of may still come and is not lost."""
        messages, requests = list(said), list(completed)
        stored = await self._stored()
        of = {f"mk{number}x": row for row in stored.users for number in MARKER.findall(row["text"])} | stored.commands
        acknowledged = [m for m in messages if self.telegram and m.update["update_id"] <= self.telegram.acknowledged]
        unaccounted = [f"{m.key}: {why}" for m in acknowledged if (why := self._missing(m, of, stored.parts))]
        unaccounted += [f"mk{r.number}x: not stored" for r in requests if f"mk{r.number}x" not in of]
        return Outcome(
            tries=tries,
            acknowledged=len(acknowledged) + len(requests),
            lost=tuple(unaccounted),
            duplicated=(*self._shown_twice(stored.parts), *_stored_twice(stored.users)),
            broken=(*stored.broken, *_wrong_answers(requests), *self._untold(stored.parts)),
            given_up=sum(bool(GIVEN_UP.search(row["answer"] or "")) for row in stored.users),
            recovery=tuple(self.recovery),
        )

    def _missing(self, message: Message, of: Mapping[str, asyncpg.Record], parts: Sequence[Part]) -> str:
        """Why its writer has seen neither an answer nor a word that there is none; empty if he has."""
        row = of.get(message.key)
        if row is None:
            return "not stored"
        if row["answered_by"] is None:
            return "" if row["closed_at"] is not None else "not answered"
        seen = {sent.text for sent in self.telegram.sent if sent.chat == message.chat} if self.telegram else set()
        own = [part for part in parts if part["message_id"] == row["answered_by"]]
        if not own:
            return "its answer was never to be sent"
        for part in own:
            doubted = part["state"] == "uncertain" and any(notice in seen for notice in TOLD)
            if part["text"] not in seen and not doubted:
                return f"its answer is {part['state']} and was not shown"
        return ""

    def _shown_twice(self, parts: Sequence[Part]) -> list[str]:
        """An answer that a chat saw more often than there is an answer; a marker that it saw answered twice.

        A notice about a doubt may come twice: better than that the doubt is hidden.
        """
        shown = [sent for sent in self.telegram.sent if sent.text not in (SAVED_NOTICE, *TOLD)] if self.telegram else []
        seen = Counter((str(sent.chat), sent.text) for sent in shown)
        owed = Counter((part["chat"], part["text"]) for part in parts if part["state"] in ("sent", "uncertain"))
        twice = [f"{chat}: {text[-40:]!r} {n}×" for (chat, text), n in seen.items() if n > owed[chat, text]]
        marks = Counter((chat, mark) for (chat, text), n in seen.items() for mark in ANSWER.findall(text) * n)
        return twice + [f"{chat}: fin{mark}x {n}×" for (chat, mark), n in marks.items() if n > 1]

    def _untold(self, parts: Sequence[Part]) -> list[str]:
        """What counts as sent and was not seen."""
        if self.telegram is None:
            return []
        seen = Counter((str(sent.chat), sent.text) for sent in self.telegram.sent)
        certain = Counter((part["chat"], part["text"]) for part in parts if part["state"] == "sent")
        return [f"{chat}: {text[-40:]!r} counts as sent" for (chat, text), n in certain.items() if seen[chat, text] < n]

    async def _open(self) -> int:
        try:
            [left] = await self.process.rows(
                """select (select count(*) from messages 
                            where kind = 'user' and answered_by is null and closed_at is null)
                        + (select count(*) from outbox where state in ('pending', 'sending'))
                        + (select count(*) from inbox where handled_at is null) as n"""
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return 1
        return int(left["n"])

    async def _stored(self) -> Stored:
        async with self.process.connected() as conn:
            users = await conn.fetch(
                """select m.text, m.answered_by, m.closed_at, a.text as answer, a.kind as answer_kind
                   from messages m left join messages a on a.id = m.answered_by where m.kind = 'user' order by m.id"""
            )
            commands = await conn.fetch(
                "select platform_id, message_id as answered_by, null as closed_at from inbox where kind = 'command'"
            )
            parts = await conn.fetch(
                "select chat, text, state, message_id from outbox o join addresses a on a.id = o.address_id"
            )
            broken = [f"{row['what']} {row['which']}" for row in await conn.fetch(_BROKEN)]
        shown = [{**part, "text": visible(to_html(part["text"]))} for part in parts]
        return Stored(users, {f"/{row['platform_id']}": row for row in commands}, shown, tuple(broken))


_BROKEN = """
select 'hole in transcript' as what, session_id::text as which from messages where seq is not null
  group by session_id having max(seq) <> count(*) or min(seq) <> 1
union all
select 'call without its result', task_id || '/' || ordinal from messages where ordinal is not null
    and task_id not in (select id from tasks where status in ('failed', 'cancelled')) -- in the middle of the call,
    and not exists (select from messages told where told.task_id = messages.task_id and told.seq > messages.seq
                    and told.kind = 'notice' and told.text like '%attempts failed%') -- with more to do after it
  group by task_id, ordinal having array_agg(kind order by seq) <> '{tool_intent,tool_result}'
union all
select 'task lives on', id::text from tasks where kind = 'chat' and status in ('pending', 'running')
union all
select 'command not handled', id::text from inbox where handled_at is null
"""


def _stored_twice(users: Sequence[asyncpg.Record]) -> list[str]:
    marks = Counter(number for row in users for number in MARKER.findall(row["text"]))
    return [f"mk{number}x stored {n}×" for number, n in marks.items() if n > 1]


def _wrong_answers(requests: Sequence[Completed]) -> list[str]:
    """A request was acknowledged with an answer to something else."""
    return [
        f"mk{r.number}x got {r.answer[:60]!r}"
        for r in requests
        if f"fin{r.number}x" not in r.answer and not GIVEN_UP.search(r.answer)
    ]


# --- how long it took ---

_OPEN = """
select m.id, t.id as task, coalesce(t.token, 0) as token, m.answered_by is not null or m.closed_at is not null as over
from messages m left join tasks t on t.session_id = m.session_id 
  and t.kind = 'chat' and t.status in ('pending', 'running')
where m.kind = 'user' and (m.id = any($1::bigint[]) or ($1 is null and m.answered_by is null and m.closed_at is null))
"""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The messages that were open when the fault came, each with its task and that task's fence."""

    open: Mapping[int, tuple[object, int]]

    @classmethod
    async def now(cls, process: GatewayProcess) -> "Interrupted":
        rows = await process.rows(_OPEN, None)
        return cls({row["id"]: (row["task"], row["token"]) for row in rows})

    async def taken_up(self, process: GatewayProcess, into: list[float]) -> None:
        """Enter, for each, how many seconds from now it takes until it is in work again; cancelled by the next kill.

        What is killed again before it was taken up is measured from the next restart.
        """
        began, left = time.monotonic(), dict(self.open)
        async with process.connected() as conn:
            while left:
                for row in await conn.fetch(_OPEN, list(left)):
                    task, token = left[row["id"]]
                    if row["over"] or row["token"] > token or (row["task"] != task and row["token"] > 0):
                        into.append(time.monotonic() - began)
                        del left[row["id"]]
                await asyncio.sleep(0.03)


async def answered_after(process: GatewayProcess, healed: float) -> list[float]:
    """For each message written before `healed` (wall clock) and answered after it: how long after."""
    rows = await process.rows(
        """select extract(epoch from a.created_at)::float8 as at from messages m join messages a on a.id = m.answered_by
           where extract(epoch from m.sent_at) <= $1 and extract(epoch from a.created_at) > $1""",
        healed,
    )
    return [row["at"] - healed for row in rows]
