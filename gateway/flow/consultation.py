"""Questions that keep a call waiting, such as those of an MCP server: a call has several, one after another."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from gateway.agent.mcp.elicitation import Consult
from gateway.domain.conversation.tools import Caller, ToolClass
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.flow.approvals import Questions
from gateway.flow.live import ToolProgressed
from gateway.store.connection.pool import Connection
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion, ReviewRow

LASTS, POLL_SECONDS = timedelta(minutes=5), 0.5
MAX_QUESTIONS, MAX_REST = 100, 2**18
"""Of one call, whose questions have negative ordinals, and in characters."""
CALL_ENDED = "its call, which ended"
"""Closes a question whose call no longer waits."""


@dataclass(frozen=True, slots=True)
class Consultation(Consult):
    """Asks about the calls of one principal, in reviews."""

    questions: Questions
    principal: PrincipalId

    async def ask(self, caller: Caller, tool: str, preview: str, number: int, rest: str, /) -> str | None:
        """See `Consult`.

        A call that a crash interrupted, and that runs again, finds its question, and the answer, by its `number`.
        """
        engine = self.questions.engine

        async def ask(tx: Connection) -> ReviewRow:
            asked = await self.questions.person(tx, self.principal, caller)
            what = tool, {"preview": preview, "rest": rest * (len(rest) <= MAX_REST)}, preview, Label.UNTRUSTED, ""
            where = caller.session, caller.address, caller.task, _ordinal(caller, number)
            question = ReviewQuestion(self.principal, asked, *what, *where, LASTS, act=ToolClass.ACT, kind="review")
            found, now = await reviews.ask(tx, question, engine.clock.now()), engine.clock.now()
            if found.preview != preview:
                return await reviews.ask(tx, replace(question, ordinal=None), now)
            return await reviews.reopen(tx, found, now + LASTS) if found.decided_by == CALL_ENDED else found

        row = await engine.database.run(ask)
        try:
            while row.state == "open":
                await self.questions.try_to_look()  # shows it, and closes it when its time is up
                await asyncio.sleep(POLL_SECONDS)
                row = await engine.database.run(partial(reviews.lock, review=row.id))
            await engine.database.run(partial(reviews.start, review=row.id))
        finally:
            if row.state == "open":
                end = partial(reviews.decide, review=row.id, asked=row.asked_id, yes=False, by=CALL_ENDED)
                await asyncio.shield(engine.database.run(partial(end, now=engine.clock.now(), label=Label.OWNER)))
        return str((row.response or {}).get("comment", "")) if row.state == "approved" else None

    async def rest_of(self, caller: Caller, /) -> tuple[str, int]:
        """See `Consult`; the questions of a call that can't go on are closed."""
        database, ordinals = self.questions.engine.database, [_ordinal(caller, n) for n in range(MAX_QUESTIONS)]
        asked = await database.read(lambda conn: reviews.of_calls(conn, caller.task, ordinals))
        rests = [str(row.arguments.get("rest", "")) for row in asked]
        if asked and asked[0].started_at is None and rests[0]:
            return rests[0], len(rests) - rests.count(rests[0])
        if asked:
            await database.run(lambda tx: reviews.close(tx, calls=[f"{caller.task}/{row.ordinal}" for row in asked]))
        return "", 0

    def report(self, caller: Caller, progress: str, /) -> None:
        """See `Consult`."""
        self.questions.engine.live.publish(caller.session, ToolProgressed(caller.ordinal, progress))


def _ordinal(caller: Caller, number: int) -> int:
    """The key of a question; the newest of a call has the lowest."""
    return -1 - caller.ordinal * MAX_QUESTIONS - number
