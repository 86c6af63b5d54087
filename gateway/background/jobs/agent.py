"""`agent`: answers a prompt of a schedule, another program or a node of a task tree, for which no chat waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from gateway.agent.work.task_trees import TASK
from gateway.background.jobs import OUT_OF_ATTEMPTS, JobParts
from gateway.config.failpoints import Step
from gateway.domain.conversation.transcript import Notice
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Assignment, Claim, Status, TurnResult
from gateway.flow.engine import Engine
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.people import NOT_LET_IN
from gateway.flow.trees.node import AgentModel, NodeRun, TaskFolder
from gateway.flow.turn.opening import OpenedTurn, PromptOpening
from gateway.flow.turn.runner import AgentParts
from gateway.flow.unattended.completion import Origin, ScheduleOrigin, TaskOrigin, TriggerOrigin, UnattendedFinisher
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.files import attachments
from gateway.store.transcript import journals, messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks

TURN_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0
"""Seconds until a run retries while others of its conversation are ahead: for each of these, and at most."""


@dataclass(slots=True)
class AgentRun:
    """The runner of `agent` tasks."""

    engine: Engine
    agents: AgentParts
    workspaces: Workspaces
    finisher: UnattendedFinisher
    origins: Mapping[str, Origin]
    model: AgentModel

    async def run(self, run: Claim) -> None:
        """Answer the prompt and deliver the answer; raises `RunLost` if the run was cancelled or taken over."""
        self.engine.failpoints.reach(Step.TURN_CLAIMED)
        await self.agents.file_sync.before_run(run.principal_id)
        assignment, opened = await self.engine.database.run(lambda tx: self._open(tx, run))
        if opened is None:
            return
        self.engine.failpoints.reach(Step.TURN_TAKEN)
        if assignment.origin == TASK:
            await self._node(run, assignment, opened)
            return
        result = await self.agents.runner.answer(await self.agents.runner.begin(opened))
        await self.agents.file_sync.after_turn(run.principal_id)
        self.engine.failpoints.reach(Step.ANSWER_READY)
        await self._finish(assignment, opened, result)

    async def give_up(self, run: Claim) -> None:
        """Report used-up attempts like any other failure."""
        assignment, opened = await self.engine.database.run(lambda tx: self._open(tx, run))
        if opened is not None:
            text = f"{run.max_attempts} attempts failed; the log says why"
            result = TurnResult(Notice(text), status=Status.FAILED, error=OUT_OF_ATTEMPTS)
            await self._finish(assignment, opened, result)

    async def _node(self, run: Claim, assignment: Assignment, opened: OpenedTurn) -> None:
        """Run a node once; it may go back to waiting."""
        if assignment.fork is not None:
            await self.workspaces.copy_for(run.principal_id, assignment.fork)
        workspace = self.agents.environments.of(run.principal_id).workspace
        folder = await TaskFolder.of(self.engine.database, workspace, run.id)
        node = NodeRun(self.engine, self.agents, self.model, run, assignment, folder)
        if (ended := await node.ended(opened)) is not None:
            opened, result = ended
            self.engine.failpoints.reach(Step.ANSWER_READY)
            await self._finish(assignment, opened, result)

    async def _finish(self, assignment: Assignment, opened: OpenedTurn, result: TurnResult) -> None:
        origin = self.origins[assignment.origin]
        origin.after(await self.finisher.finish(assignment, opened, result, origin))

    async def _open(self, tx: Connection, run: Claim) -> tuple[Assignment, OpenedTurn | None]:
        """Open the turn; None if it is no longer wanted or has to wait for others."""
        assignment = Assignment.model_validate(await tasks.payload(tx, run.id))
        if why := await self._unwanted(tx, run, assignment):
            await self._drop(tx, run, assignment, why)
            return assignment, None
        if ahead := await tasks.count_ahead(tx, run):
            await tasks.requeue(tx, run, delay=min(ahead * TURN_SECONDS, MAX_WAIT_SECONDS), failed=False)
            return assignment, None
        label, history = await _history(tx, run, assignment)
        opening = PromptOpening(
            run=run,
            prompt=assignment.prompt,
            label=max(label, assignment.label),
            origin=assignment.origin,
            history=history,
            private=await _private(tx, assignment),
            asked=assignment.asked,
        )
        return assignment, await opening.open(tx)

    async def _unwanted(self, tx: Connection, run: Claim, assignment: Assignment) -> str | None:
        """The reason why the task is no longer wanted, or None."""
        if why := await self.origins[assignment.origin].unwanted(tx, run):
            return why
        return None if await self.engine.people.lets_in(tx, run.principal_id) else NOT_LET_IN

    async def _drop(self, tx: Connection, run: Claim, assignment: Assignment, why: str) -> None:
        """End the task, and close the messages that earlier attempts left open."""
        assert run.session_id is not None, "it was queued with one"
        await sessions.lock(tx, run.session_id)
        await messages.close(tx, run.session_id)
        if await sessions.end_unnamed(tx, run.session_id):
            await journals.close(tx, run.session_id, assignment.name)
        await tasks.finish(tx, run, Status.CANCELLED, error=why)
        await self.origins[assignment.origin].dropped(tx, run, why)


async def _history(tx: Connection, run: Claim, assignment: Assignment) -> tuple[Label, Sequence[MessageRow]]:
    """The chat in which the task was requested, if the assignment includes it, with its label."""
    if not assignment.history or assignment.address is None:
        return Label.OWNER, ()
    at = await addresses.get(tx, assignment.address)
    if at.principal_id != run.principal_id:
        return Label.OWNER, ()
    # Open messages in that chat are answered by its own turn only.
    rows = list(takewhile(lambda row: not row.open, await messages.transcript(tx, at.session_id)))
    return await sessions.label(tx, at.session_id), await attachments.with_attachments(tx, rows)


async def _private(tx: Connection, assignment: Assignment) -> bool:
    """Whether a person, not a program, made the request; a schedule may be a program's if its chat is a token's."""
    if assignment.schedule is None:
        return assignment.private
    if assignment.address is None or assignment.label is Label.OWNER:
        return True
    return not (await addresses.get(tx, assignment.address)).address.by_token


def runner(parts: JobParts) -> AgentRun:
    """The runner of `agent` tasks."""
    agents, delivery, workspaces = parts.agents, parts.delivery, parts.files.workspaces
    finisher = UnattendedFinisher(workspaces, delivery.proactive, agents.finisher)
    schedules = ScheduleOrigin(delivery.follow_up.follow, parts.engine.signals)
    origins = {"schedule": schedules, "trigger": TriggerOrigin(), TASK: TaskOrigin()}
    return AgentRun(parts.engine, agents, workspaces, finisher, origins, parts.models.agent)
