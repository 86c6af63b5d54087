"""`approval`: runs an approved call once and reports its outcome, also a denial or an expiry."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.agent.loop import MAY_HAVE_RUN
from gateway.agent.toolbox import ApprovedCall, ToolOutcome
from gateway.background.jobs import JobParts
from gateway.config.failpoints import Step
from gateway.domain.conversation.diff import legible
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import Caller, ToolClass
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import FileId, ReviewId, SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.approvals import OWN_CALLS, Questions
from gateway.flow.engine import Engine
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.journal.export import archive
from gateway.flow.outbound.parts import record_file
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.environment import AgentEnvironment, AgentEnvironments
from gateway.flow.turn.steps import Fence
from gateway.store.connection.pool import Connection
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.store.trust.reviews import EXPORT_MINE, ReviewRow, digest_of
from gateway.store.work import tasks, trees
from gateway.workspace.files.paths import WorkspaceError

MAX_CHARS = 2_000
"""The limit of a result in characters."""
EXPORTED = "{}, in the file below, without files (ask me for one), reminders, secrets, and what you said in groups."
NOT_THIS = "This is not the call that was approved; nothing was done."


_UNDONE = {
    "denied": "was denied",
    "expired": "expired without an answer",
    "closed": "was closed with the request it belonged to",
}


@dataclass(slots=True)
class Approval:
    """The runner of `approval` tasks."""

    engine: Engine
    environments: AgentEnvironments
    questions: Questions
    proactive: ProactiveMessages
    workspaces: Workspaces

    async def run(self, run: Claim) -> None:
        """Run the approved call, or report that it was not approved; raises `RunLost`."""
        review, again = await self.engine.database.run(lambda tx: _start(tx, run))
        outcome, files = None, list[FileId]()
        if review.state == "approved" and review.tool == EXPORT_MINE:
            outcome = await self._exported(review, files)
        elif review.state == "approved" and review.tool not in OWN_CALLS:
            self.engine.failpoints.reach(Step.APPROVAL_STARTED)
            outcome = await self._called(run, review, again=again)
            self.engine.failpoints.reach(Step.APPROVAL_RAN)
        await self._finish(run, review, outcome, files)

    async def give_up(self, run: Claim) -> None:
        """Tell the person that the call may have run."""
        review, _ = await self.engine.database.run(lambda tx: _start(tx, run))
        await self._finish(run, review, ToolOutcome(MAY_HAVE_RUN, Label.OWNER))

    async def _exported(self, review: ReviewRow, files: list[FileId]) -> ToolOutcome:
        """Put a member's data among their files, and the file's id into `files`; the outcome is the receipt."""
        person, name = review.principal_id, f"my-data-{review.name}.zip"
        packed, counted = await archive(self.engine.database, person, self.proactive.outbound.clean)
        try:
            written = await self.workspaces.of(person).write(name, packed, Label.UNTRUSTED, unlocked=True)
        except WorkspaceError as error:
            return ToolOutcome(f"It couldn't be written: {error}", Label.KNOWN)
        row = await self.engine.database.run(lambda tx: record_file(tx, person, written, Label.UNTRUSTED))
        files.append(row.id)
        return ToolOutcome(EXPORTED.format(counted), Label.KNOWN)

    async def _called(self, run: Claim, review: ReviewRow, *, again: bool) -> ToolOutcome:
        """Make the exact calls until one fails; what began before a crash never begins again.

        What the person made last is theirs, word for word; any other call is trusted as little as who asked for it.
        """
        if digest_of(review.tool, review.arguments, review.base, review.session_id) != review.digest:
            return ToolOutcome(NOT_THIS, Label.OWNER)
        await self.environments.refresh()
        toolbox, fence = (await self._environment(review)).toolbox, Fence(self.engine.database, run)
        await toolbox.refresh()
        own = self.engine.people.own_label(review.principal_id)
        caller = Caller(
            review.task_id or run.id,
            review.ordinal or 0,
            review.session_id or SessionId(run.id),
            review.address_id,
            own if review.act is ToolClass.PERSIST else max(own, review.label),
            fence=fence.cross,
            check=fence.check,
        )
        if again and not await toolbox.waits(review.tool, caller):
            await fence.outlast(max(toolbox.seconds_under_way(call.tool) for call in review.calls))
            return ToolOutcome(MAY_HAVE_RUN, Label.OWNER)
        outcomes = list[ToolOutcome]()
        for each in review.calls:
            call = ToolCall("", each.tool, json.dumps(each.arguments))
            outcomes.append(await toolbox.run(call, caller, approval=ApprovedCall(each.act, each.base)))
            if outcomes[-1].failed:
                break
        return _together(review, outcomes)

    async def _environment(self, review: ReviewRow) -> AgentEnvironment:
        """The environment in which the call was requested; a fork's environment has its own files."""
        task = review.task_id
        fork = await self.engine.database.read(lambda conn: trees.fork_of(conn, task)) if task else None
        return self.environments.of(review.principal_id, fork)

    async def _finish(
        self, run: Claim, review: ReviewRow, outcome: ToolOutcome | None, files: Sequence[FileId] = ()
    ) -> None:
        said = await self.engine.database.run(lambda tx: self._store(tx, run, review, outcome, files))
        if said is not None:
            self.proactive.committed(said)
        self.engine.signals.schedules.set()

    async def _store(
        self, tx: Connection, run: Claim, review: ReviewRow, outcome: ToolOutcome | None, files: Sequence[FileId]
    ) -> MessageRow | None:
        """End the task. The chat of the question and the session that asked both get the result.

        Only the session gets a denial or an expiry: the person made the one and left the other unanswered.
        """
        at = await self.questions.place(tx, review) if review.state == "approved" else None
        asking = await _open_session(tx, review, at.session_id if at else None)
        await tasks.hold(tx, run)
        own, said = self.engine.people.own_label(review.principal_id), None
        text = AssistantText(await self._words(tx, review, own, outcome), final=False)
        label = max(own, outcome.label if outcome else own)
        if asking is not None:
            await sessions.taint(tx, asking, label)
            await messages.say(tx, asking, review.principal_id, text, label=label)
        if at is not None:
            said = await self.proactive.say(tx, at, at.principal_id, text, label=label, origin="gateway", files=files)
        await tasks.finish(tx, run, Status.COMPLETED, said=said.id if said else None)
        return said

    async def _words(self, tx: Connection, review: ReviewRow, own: Label, outcome: ToolOutcome | None) -> str:
        if review.state != "approved":
            return f"{review.name} ({review.tool}) {_UNDONE[review.state]}; nothing was done."
        result = outcome.text if outcome else await OWN_CALLS[review.tool](tx, review, own, self.engine.clock.now())
        await reviews.mark_done(tx, review)
        allowed = "was approved" if review.grant_id is None else f"was allowed in advance by G{review.grant_id}"
        ran = "and may have run" if result == MAY_HAVE_RUN else "and has run"
        return f"{review.name} ({review.tool}) {allowed} {ran}:\n```\n{legible(result[:MAX_CHARS])}\n```"


def _together(review: ReviewRow, outcomes: Sequence[ToolOutcome]) -> ToolOutcome:
    """The outcomes of a question's calls as one."""
    if len(review.calls) == 1:
        return outcomes[0]
    texts = [outcome.text[: MAX_CHARS // len(review.calls)] for outcome in outcomes]
    texts += ["not called, as the call before it failed"] * (len(review.calls) - len(texts))
    told = [f"step {call.step} ({call.tool}): {text}" for call, text in zip(review.calls, texts, strict=True)]
    return ToolOutcome("\n".join(told), max(outcome.label for outcome in outcomes), outcomes[-1].failed)


async def _start(tx: Connection, run: Claim) -> tuple[ReviewRow, bool]:
    await tasks.hold(tx, run)
    payload = await tasks.payload(tx, run.id)
    assert isinstance(payload["review"], int), "the payload of an approval"
    return await reviews.start(tx, ReviewId(payload["review"]))


async def _open_session(tx: Connection, review: ReviewRow, known: SessionId | None) -> SessionId | None:
    """The session that asked, locked, if it is still open; None if it is the `known` one."""
    if review.session_id is None or review.session_id == known:
        return None
    await sessions.lock(tx, review.session_id)
    return review.session_id if await sessions.is_open(tx, review.session_id) else None


def runner(parts: JobParts) -> Approval:
    """The runner of `approval` tasks."""
    agents, proactive = parts.agents, parts.delivery.proactive
    return Approval(parts.engine, agents.environments, agents.questions, proactive, parts.files.workspaces)
