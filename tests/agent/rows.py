"""Rows of a transcript, written down as a conversation goes."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID

from gateway.domain.ids import MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.store.transcript.messages import Kind, MessageRow

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW = TaskId(UUID(int=1))
EARLIER = TaskId(UUID(int=2))


@dataclass
class Spoken:
    """A session's rows; each method appends one."""

    rows: list[MessageRow] = field(default_factory=list)
    ordinals: "count[int]" = field(default_factory=count)

    def ask(self, text: str, *, open: bool = False, stopped: bool = False) -> "Spoken":
        return self._add("user", text, answered_by=None if open or stopped else 1, closed_at=NOON if stopped else None)

    def answer(self, text: str, task: TaskId = EARLIER) -> "Spoken":
        return self._add("assistant", text, task_id=task)

    def mutter(self, text: str, task: TaskId = EARLIER) -> "Spoken":
        """Words before a call."""
        return self._add("assistant", text, task_id=task, final=False)

    def notice(self, text: str, task: TaskId | None = None) -> "Spoken":
        return self._add("notice", text, task_id=task)

    def call(self, *results: str | None, task: TaskId = EARLIER, **arguments: object) -> "Spoken":
        """Calls of one reply, then their results; None where there is none yet."""
        made = [(next(self.ordinals), result) for result in results]
        for ordinal, _ in made:
            call: dict[str, Any] = {"ordinal": ordinal, "call_id": f"c{ordinal}", "tool": "look"}
            self._add("tool_intent", json.dumps(arguments), task_id=task, **call)
        for ordinal, result in made:
            if result is not None:
                self.result(ordinal, result, task)
        return self

    def result(self, ordinal: int, text: str, task: TaskId = EARLIER) -> "Spoken":
        return self._add("tool_result", text, task_id=task, ordinal=ordinal, call_id=f"c{ordinal}", tool="look")

    def summarise(self, text: str, covers: int, task: TaskId = EARLIER) -> "Spoken":
        """As the transcript is read afterwards: the summary first, then what it does not cover."""
        self._add("summary", text, covers=covers, task_id=task)
        kept = [row for row in self.rows if row.kind != "summary" and (row.seq or 0) > covers]
        return Spoken([self.rows[-1], *kept], self.ordinals)

    def _add(self, kind: Kind, text: str, **fields: Any) -> "Spoken":
        seq = max((row.seq or 0 for row in self.rows), default=0) + 1
        whole: dict[str, Any] = {
            "id": MessageId(seq),
            "session_id": SessionId(UUID(int=3)),
            "principal_id": PrincipalId(UUID(int=4)),
            "address_id": None,
            "seq": seq,
            "label": Label.OWNER,
            "origin": "fake",
            "sender": "",
            "platform_id": None,
            "sent_at": NOON,
            "solo": False,
            "final": True,
            "call_id": None,
            "tool": None,
            "task_id": None,
            "ordinal": None,
            "answered_by": None,
            "closed_at": None,
            "created_at": NOON,
            "tokens": None,
            "covers": None,
            "remembered": (),
            "model": None,
            "unasked": None,
            "withdrawn": None,
            "plan_step": None,
        }
        self.rows.append(MessageRow(kind=kind, text=text, **(whole | fields)))
        return self
