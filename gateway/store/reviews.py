"""Questions to people: a call that waits for a yes, bound to the exact change."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from gateway.domain.ids import AddressId, PrincipalId, ReviewId, SessionId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Question:
    """A call that needs `asked`'s yes; `lasts` is how long the question stays open, None for ever."""

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
    lasts: timedelta | None = timedelta(minutes=15)

    @property
    def digest(self) -> str:
        """What the yes is bound to."""
        exact = json.dumps([self.tool, self.arguments, self.base], sort_keys=True, separators=(",", ":"))
        return sha256(exact.encode()).hexdigest()


async def ask(conn: Connection, question: Question, now: datetime) -> ReviewId:
    """Store a question, once for each tool call; the gateway puts it to the person after the commit."""
    found = await conn.fetchval(
        """with added as (
             insert into reviews (kind, principal_id, asked_id, session_id, address_id, task_id, ordinal, tool,
                                  arguments, base, digest, preview, label, expires_at)
             values ('approval', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
             on conflict (task_id, ordinal) where task_id is not null do nothing returning id)
           select id from added union all select id from reviews where (task_id, ordinal) = ($5, $6) limit 1""",
        question.principal,
        question.asked,
        question.session,
        question.address,
        question.task,
        question.ordinal,
        question.tool,
        question.arguments,
        question.base,
        question.digest,
        question.preview,
        question.label,
        None if question.lasts is None else now + question.lasts,
    )
    return ReviewId(found)
