"""Questions: a call that needs approval is stored, shown to the person in a chat, and closed if nobody answers.

Also the gateway's own calls, which a person approves: each runs once, in the transaction that reports its result.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TypeAlias

import structlog
from pydantic import TypeAdapter

from gateway.agent.policy import Act, Case, Decision, Policy, Words, decide
from gateway.agent.work.approvals import where_shown_whole, why_asked
from gateway.agent.work.schedules import Schedules, schedule_line
from gateway.config.model import Reviews
from gateway.domain.channels.channel import Button
from gateway.domain.conversation.diff import CHAT_CHARS, CHAT_LINES, for_chat
from gateway.domain.conversation.tools import Caller, ToolClass, ToolFailed
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId, ReviewId
from gateway.domain.json import JsonObject
from gateway.domain.people.access import is_group
from gateway.domain.principals import Label
from gateway.domain.text.texts import is_own_words, own_part, storable
from gateway.domain.work.trees import DoubtAnswer
from gateway.flow.engine import Engine
from gateway.flow.labels import VOUCH, vouch
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions, tool_calls
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import grants, reviews
from gateway.store.trust.grants import GrantCall
from gateway.store.trust.reviews import DOUBT, ERASE_MEMBER, ERASE_MINE, ReviewQuestion, ReviewRow
from gateway.store.work import schedules
from gateway.timetable.schedules import InvalidSchedule

OwnCall: TypeAlias = Callable[[Connection, ReviewRow, Label, datetime], Awaitable[str]]
"""Runs the call of a question; the label is that of the person's own words. Returns one line about the result."""

MAX_WAITING = 5
"""Questions open in one chat; and those of all unattended runs that are open to one person."""
MAX_UNATTENDED = 2
"""Those of one unattended run, or of runs of the same schedule or trigger."""
WAITING = "Nothing is changed yet: the user was asked and sees the change. Tell them so, and do not call this again."

GRANTED = "The user allowed exactly this in advance: it runs now, and its result comes as a message. Do not repeat it."
TOGETHER_SECONDS = 0.2
"""Seconds a question waits for others of the same task, to be sent in one message."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks the person whom a change affects: in a group the member who wanted it, otherwise in their own chat."""

    engine: Engine
    proactive: ProactiveMessages
    settings: Callable[[], Reviews]
    """How long a task's question waits, and until its person is shown it again."""

    def policy(self, principal: PrincipalId, *, fork: bool = False) -> Policy:
        """The policy of this principal's tools; a `fork` asks before every act, whatever was approved before."""

        own = self.engine.people.own_label(principal)

        async def ask(act: Act, caller: Caller) -> JsonObject:
            if "\\u0000" in (exact := json.dumps(act.arguments, ensure_ascii=False)) or storable(exact) != exact:
                raise ToolFailed.own("binary", "The arguments have characters that cannot be shown; use plain text.")
            case = Case(kind=act.kind, label=caller.label, own=own, attended=False, fork=fork, granted=True)
            granted = decide(case) is Decision.ALLOW
            review = await self.engine.database.run(lambda tx: self._ask(tx, principal, act, caller, granted=granted))
            if review.grant_id is not None:
                self.engine.signals.tasks.set()
                return {"running_as": review.name, "message": GRANTED}
            await asyncio.sleep(TOGETHER_SECONDS)
            await self.try_to_look()
            return {"waiting_for_approval": review.name, "message": WAITING}

        async def said(caller: Caller, value: str) -> bool:
            texts = await self.engine.database.read(lambda conn: messages.said_by_person(conn, caller.session, own))
            return any(is_own_words(own_part(text), [value]) for text in texts)

        async def pass_unasked(caller: Caller, words: Sequence[Words] | None) -> bool:
            return await self.engine.database.run(lambda tx: self._pass_unasked(tx, own, caller, words))

        return Policy(own, ask, said, pass_unasked, fork)

    async def _pass_unasked(self, tx: Connection, own: Label, caller: Caller, words: Sequence[Words] | None) -> bool:
        await sessions.lock(tx, caller.session)
        if words is not None:
            texts = map(own_part, await messages.being_answered(tx, caller.session, own))
            if not any(all(is_own_words(text, each) for each in words) for text in texts):
                return False
        return await tool_calls.pass_unasked(tx, caller.session, caller.task, caller.ordinal, alone=words is not None)

    async def try_to_look(self) -> None:
        """Look, or leave it to the next time."""
        with logged(log, "questions.wait", TryAgainLater):
            await self.look()

    async def look(self) -> datetime | None:
        """Show new questions and close expired ones. Returns when the next one expires."""
        untold = await self.engine.database.read(lambda conn: reviews.list_untold(conn, MAX_WAITING))
        for together in batch_questions(untold):
            if row := await self.engine.database.run(partial(self._put, ids=[review.id for review in together])):
                self.proactive.committed(row)
        after = self.settings().remind
        while after and (row := await self.engine.database.run(partial(self._again, after=after))):
            self.proactive.committed(row)
        return await self.engine.database.run(lambda tx: reviews.expire(tx, self.engine.clock.now()))

    async def _again(self, tx: Connection, after: timedelta) -> MessageRow | None:
        """Show the oldest question due for a reminder; None if there is none, or no chat for it."""
        before = self.engine.clock.now() - after
        if (review := await reviews.unanswered(tx, before)) is None:
            return None
        at = await self.place(tx, review)  # the chat is locked first, as when an answer is processed
        told = await reviews.mark_reminded(tx, review.id, before)
        return await self._say(tx, at, [review]) if told and at is not None else None

    async def place(self, tx: Connection, review: ReviewRow) -> AddressRow | None:
        """The chat of the question, locked with its session; None if the person has no chat."""
        if review.address_id is not None:
            at = await addresses.lock_by_id(tx, review.address_id)
            if at.principal_id == review.principal_id and at.channel != "api":
                await sessions.lock(tx, at.session_id)
                return at
        return await self.proactive.destination(tx, review.asked_id)

    async def _ask(
        self, tx: Connection, principal: PrincipalId, act: Act, caller: Caller, *, granted: bool
    ) -> ReviewRow:
        asked, now = await self.person(tx, principal, caller), self.engine.clock.now()
        label = max(caller.label, act.change.quoted or Label.OWNER)
        what = act.tool, act.arguments, act.change.preview, label, act.change.base
        where = caller.session, caller.address, caller.task, caller.ordinal
        question = ReviewQuestion(principal, asked, *what, *where, act=act.kind)
        await reviews.hold(tx, asked)
        if stored := await reviews.of_calls(tx, caller.task, [caller.ordinal]):
            return stored[0]
        call = GrantCall(principal, asked, act.tool, act.kind, act.arguments, act.change.base)
        if granted and (grant := await grants.take(tx, call, now)):
            return await reviews.ask(tx, replace(question, grant=grant), now)
        if before := await reviews.asked_before(tx, question, now):
            if before.state == "denied":
                raise ToolFailed.own("denied", f"The user said no to exactly this, as {before.name}; do not ask again.")
            return before
        counted = await reviews.list_counted(tx, question, now)
        own = sum(same for _, same in counted)
        if len(counted) >= MAX_WAITING or (caller.address is None and own >= MAX_UNATTENDED):
            names = ", ".join(name for name, same in counted if same or not own)
            message = f"{names} wait for an answer, or had none or a no lately; nothing was changed."
            raise ToolFailed.own("too_many_questions", message)
        if for_chat(act.change.preview)[1] and not self.engine.people.is_owner(asked):
            raise ToolFailed.own(
                "too_long", "The user has to approve this, and it is too long to show; make it shorter."
            )
        return await reviews.ask(tx, question, now)

    async def person(self, tx: Connection, principal: PrincipalId, caller: Caller) -> PrincipalId:
        """The person who may approve: in a group the member who wrote last, or the owner if nobody did."""
        if not is_group(await principals.identities(tx, principal)):
            return principal
        said = await inbox.last_speaker(tx, caller.session)
        return await principals.ensure_member(tx, said[1], said[0]) if said else self.engine.people.owner.id

    async def _put(self, tx: Connection, ids: Sequence[ReviewId]) -> MessageRow | None:
        together = [review for id in ids if (review := await reviews.get(tx, id)) is not None]
        at = await self.place(tx, together[0])
        together = [review for review in together if at is not None and await reviews.mark_told(tx, review.id)]
        return await self._say(tx, at, together) if at is not None and together else None

    async def _say(self, tx: Connection, at: AddressRow, together: Sequence[ReviewRow]) -> MessageRow:
        label = max(review.label for review in together)
        kept, sent, buttons = render_questions(together)
        if await sessions.label(tx, at.session_id) >= label:
            kept = sent  # never store text that is trusted less than the session
        return await self.proactive.say(tx, at, at.principal_id, Notice(kept), label=label, sent=sent, buttons=buttons)


def batch_questions(reviews: Sequence[ReviewRow]) -> list[list[ReviewRow]]:
    """Questions grouped by message: those of the same task and person, as long as each is shown in full."""
    found: list[list[ReviewRow]] = []
    for _, each in groupby(reviews, lambda review: (review.task_id, review.asked_id)):
        filled = 1.0
        for review in each:
            filled += (takes := _takes(review))
            if filled > 1:
                found.append([])
                filled = takes
            found[-1].append(review)
    return found


def _takes(review: ReviewRow) -> float:
    """The share of a message it needs; 1 if it is cut, or a question of the gateway."""
    shown, left = for_chat(review.preview)
    if left or review.task_id is None or review.tool == DOUBT:
        return 1.0
    return max(len(shown) / CHAT_CHARS, (shown.count("\n") + 1) / CHAT_LINES)


def render_questions(reviews: Sequence[ReviewRow]) -> tuple[str, str, tuple[Button, ...]]:
    """The question without the agent's text; the one for the chat, with that text in code blocks; and the buttons."""
    kept, sent = zip(*map(_render_question, reviews), strict=True)
    cut = any(for_chat(review.preview)[1] for review in reviews)
    answer, buttons = _of_doubt(reviews[0].name) if reviews[0].tool == DOUBT else _of_requests(reviews)
    expires = reviews[0].expires_at
    soon = expires is None or expires - reviews[0].created_at < timedelta(hours=12)
    until = "" if expires is None else f" It expires at {expires:{'%H:%M' if soon else '%H:%M on %d %B'}} UTC."
    if cut:
        answer, buttons = "", buttons[1:]
    return "\n".join(kept) + until, "\n".join([*sent, answer]).rstrip() + until, buttons


def _of_requests(reviews: Sequence[ReviewRow]) -> tuple[str, tuple[Button, ...]]:
    """The commands and buttons that answer them; the first button approves."""
    names, first = " ".join(review.name for review in reviews), reviews[0].name
    if len(reviews) > 1:
        answer = f"Approve or deny them together, or one by one, as with /approve {first}."
        return answer, (Button("Approve all", f"/approve {names}"), Button("Deny all", f"/deny {names}"))
    answer = f"/approve {first} or /deny {first}."
    return answer, (Button("Approve", f"/approve {first}"), Button("Deny", f"/deny {first}"))


def _of_doubt(name: str) -> tuple[str, tuple[Button, ...]]:
    """The same for a call that may have run."""
    again, ran, give_up = f"/approve {name}", f"/deny {name} {DoubtAnswer.RAN}", f"/deny {name} {DoubtAnswer.GIVE_UP}"
    answer = f"Look there first. {again} runs it again, {ran} goes on without it, {give_up} ends the task."
    return answer, (Button("Run it again", again), Button("It ran", ran), Button("Give up", give_up))


def _render_question(review: ReviewRow) -> tuple[str, str]:
    shown, left = for_chat(review.preview)
    whole = where_shown_whole(review)
    asks = "may I make this change?" if review.kind == "approval" else "what do you say?"
    if review.tool == DOUBT:
        asks = "did this run?"
    what = review.title if review.tool == DOUBT else review.tool
    head = f"**{review.name}: {asks}** ({what})\n{why_asked(review)}\n"
    more = f"\n{left} more lines not shown. {whole}" if left else ""
    return f"{head}{whole}", f"{head}```\n{shown}\n```{more}"


async def resume_schedule(tx: Connection, review: ReviewRow, own: Label, now: datetime) -> str:
    """Arguments {"schedule": id}: resume it, with the label of its person."""
    mine, which = Schedules(tx, review.principal_id, now, most=None), str(review.arguments.get("schedule"))
    try:
        row = await mine.resume(which)
    except InvalidSchedule as refusal:
        return str(refusal)
    await schedules.trust(tx, row.id, own)
    return f"Resumed: {schedule_line(row)}"


async def vouch_files(tx: Connection, review: ReviewRow, own: Label, _now: datetime) -> str:
    """Arguments {"paths": hashes by path}: give exactly these contents the label of the person."""
    paths = TypeAdapter(dict[str, str]).validate_python(review.arguments["paths"])
    await vouch(tx, review.principal_id, paths, own)
    return f"Vouched for {len(paths)} file{'s' * (len(paths) != 1)}; /new starts a conversation that trusts them."


ERASING = "It needs the gateway stopped, so a yes only shows the command. They get a receipt when it is done."


async def ask_to_erase(tx: Connection, review: ReviewRow, _own: Label, now: datetime) -> str:
    """Ask the owner, once, to erase a member's data: it needs the gateway stopped."""
    owner, member = await principals.lock_owner(tx), await principals.get(tx, review.principal_id)
    account = next(iter(await principals.identities(tx, member.id)))
    preview = f"{member.name} ({account}) asks you to have all that is theirs erased. {ERASING}"
    what = ERASE_MEMBER, {"account": account}, preview, Label.KNOWN
    question = ReviewQuestion(owner.id, owner.id, *what, lasts=None, act=ToolClass.IRREVERSIBLE)
    if not any(row.digest == question.digest for row in await reviews.list_open(tx, owner.id, now)):
        await reviews.ask(tx, question, now)
    return "The owner is asked. When it is done, you get a receipt here; until then nothing is gone."


async def erase_member(_tx: Connection, review: ReviewRow, _own: Label, _now: datetime) -> str:
    """Arguments {"account"}: say how, for it can't be done while the gateway runs."""
    return f"Run: supaclaw down && supaclaw pairing erase {review.arguments['account']} && supaclaw up"


async def embed(_tx: Connection, review: ReviewRow, _own: Label, _now: datetime) -> str:
    """Arguments {"model", "rows"}: the job finds the approval itself within minutes."""
    return f"{review.arguments['model']} embeds your memories; `supaclaw status` shows the progress."


EMBED = "embed_memory"

OWN_CALLS: Mapping[str, OwnCall] = {
    "resume_schedule": resume_schedule,
    VOUCH: vouch_files,
    EMBED: embed,
    ERASE_MINE: ask_to_erase,
    ERASE_MEMBER: erase_member,
}
"""Calls by the name in `tool`; no tool of the agent may have one of these names."""
