"""System calls: requests of a node to the engine, carried out in one transaction under its fence.

A call has no result while the node waits for it, so the next run of a killed one finds it and continues there.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import assert_never

from gateway.agent.work.task_trees import BadSystemCall, SystemCall, node_assignment, parse_system_call, queue
from gateway.domain.conversation.tools import Labelled, ToolClass
from gateway.domain.conversation.transcript import ToolFinished, ToolIntent, ToolResult
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Assignment, Claim, Status
from gateway.domain.work.trees import (
    LONGEST_RESULT,
    MOST_DEEP,
    MOST_HAND_OFFS,
    MOST_NODES,
    CompleteTask,
    CreateSubtask,
    Handoff,
    LoadSkill,
    RequestHumanReview,
    SaveIntermediateData,
)
from gateway.store.connection.pool import Connection
from gateway.store.transcript import sessions, tool_calls
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.store.trust.reviews import FREE_QUESTION, ReviewQuestion
from gateway.store.work import tasks, trees
from gateway.store.work.trees import ChildRow


class NextStep(Enum):
    """How the run continues."""

    GO_ON = auto()
    WAIT = auto()
    ASK = auto()
    """As `WAIT`, for a person's answer to a question."""


@dataclass(frozen=True, slots=True)
class NodeCompleted:
    """The node completed its task with this result."""

    output: str


@dataclass(frozen=True, slots=True)
class ReviewUnanswered:
    """Nobody answered the node's question in time."""

    name: str


@dataclass(slots=True)
class SystemCalls:
    """The calls of one transaction; the caller holds the session and the task. `skills` are texts that were read, and
    `lasts` is how long a question waits."""

    tx: Connection
    run: Claim
    assignment: Assignment
    label: Label
    agents: Set[str]
    skills: Mapping[int, JsonObject]
    now: datetime
    lasts: timedelta
    _children_left: bool = field(default=False, init=False)
    _person_asked: bool = field(default=False, init=False)
    _unanswered: str | None = field(default=None, init=False)
    _output: str | None = field(default=None, init=False)
    _handed_off: bool = field(default=False, init=False)

    async def carry_out(self, calls: Sequence[MessageRow]) -> NextStep | NodeCompleted | ReviewUnanswered:
        """Carry out each call as far as possible now; `complete_task` comes last."""
        parsed = [(call, _parsed(call)) for call in calls]
        for call, wanted in sorted(parsed, key=lambda each: isinstance(each[1], CompleteTask)):
            await self._one(call, wanted)
        if self._unanswered is not None:
            return ReviewUnanswered(self._unanswered)
        if self._output is not None:
            return NodeCompleted(self._output)
        if self._children_left:
            await tasks.suspend(self.tx, self.run, Status.PENDING_SUBTASK)
            return NextStep.WAIT
        if self._person_asked:
            await tasks.suspend(self.tx, self.run, Status.NEEDS_HUMAN_REVIEW)
            return NextStep.ASK
        if self._handed_off:
            await tasks.renew(self.tx, self.run)
            return NextStep.WAIT
        return NextStep.GO_ON

    async def _one(self, call: MessageRow, wanted: SystemCall | BadSystemCall) -> None:
        match wanted:
            case BadSystemCall():
                await self._conclude(call, Labelled.own({"error": "invalid_arguments", "message": str(wanted)}))
            case CreateSubtask():
                await self._subtasks(call, wanted)
            case RequestHumanReview(question=question):
                await self._review(call, question)
            case Handoff(agent=agent):
                await self._hand_off(call, agent)
            case SaveIntermediateData(data=data):
                await trees.save(self.tx, self.run, data)
                await self._conclude(call, Labelled.own({"saved": sorted(data)}))
            case LoadSkill():
                await self._conclude(call, Labelled.own(self.skills.get(call.ordinal or 0, {"error": "not_found"})))
            case CompleteTask(output=output):
                await self._complete(call, output)
            case _:
                assert_never(wanted)

    async def _complete(self, call: MessageRow, output: str) -> None:
        if self._children_left or self._person_asked or self._handed_off:
            message = "Nothing was ended: you created subtasks, asked a person or handed off at the same time."
            await self._conclude(call, Labelled.own({"error": "not_yet", "message": message}))
            return
        await self._conclude(call, Labelled.own({"completed": True}))
        self._output = output

    async def _subtasks(self, call: MessageRow, wanted: CreateSubtask) -> None:
        assert call.ordinal is not None, "a call has a number"
        made = await trees.children(self.tx, self.run.id, call.ordinal)
        if not made:
            if (why := await self._refusal(wanted)) is not None:
                await self._conclude(call, Labelled.own({"error": "not_created", "message": why}))
                return
            for each in wanted.tasks:
                await self._create(call.ordinal, each.agent, each.input)
        elif all(child.status.final for child in made):
            label = max(child.label for child in made)
            await self._conclude(call, Labelled({"results": [_child_result(child) for child in made]}, label))
            return
        self._children_left = True

    async def _refusal(self, wanted: CreateSubtask) -> str | None:
        if unknown := sorted({each.agent for each in wanted.tasks} - self.agents):
            return f"There is no agent {', '.join(unknown)[:200]}; there are {', '.join(sorted(self.agents))}."
        place = await trees.place(self.tx, self.run.id)
        if place.depth + 1 >= MOST_DEEP:
            return f"A tree has {MOST_DEEP} levels at most; do the work yourself."
        if await trees.size(self.tx, place.master) + len(wanted.tasks) > MOST_NODES:
            return f"A tree has {MOST_NODES:,} tasks at most; do the rest yourself."
        return None

    async def _create(self, call: int, agent: str, text: str) -> None:
        work = node_assignment(text, self.label, private=self.assignment.private, call=call, fork=self.assignment.fork)
        session = await sessions.start(self.tx, self.run.principal_id, self.label, unattended=True)
        await queue(self.tx, self.run.principal_id, work, session, parent=self.run.id, agent=agent)

    async def _review(self, call: MessageRow, question: str) -> None:
        name, arguments = FREE_QUESTION, {"question": question}
        asked = task_question(self.run, self.assignment, name, arguments, question, self.label, self.lasts)
        stored = await reviews.ask(self.tx, replace(asked, ordinal=call.ordinal), self.now)
        row = await reviews.lock(self.tx, stored.id)
        if row.state == "open":
            self._person_asked = True
        elif row.response is None:
            await self._conclude(call, Labelled.own({"error": "expired", "message": f"Nobody answered {row.name}."}))
            self._unanswered = row.name
        else:
            told = {name: value for name, value in row.response.items() if name != "label"}
            label = Label(int(str(row.response.get("label", Label.OWNER))))
            await self._conclude(call, Labelled({**told, "by": row.decided_by}, label))

    async def _hand_off(self, call: MessageRow, agent: str) -> None:
        if agent not in self.agents:
            message = f"There is no such agent; there are {', '.join(sorted(self.agents))}."
        elif await trees.hand_offs(self.tx, self.run.id) >= MOST_HAND_OFFS:
            message = f"This task has changed hands {MOST_HAND_OFFS} times; end it yourself."
        else:
            await trees.hand_off(self.tx, self.run, agent)
            self._handed_off = True
            await self._conclude(
                call, Labelled.own({"handed_to": agent, "message": f"You are {agent} now. Go on with the task."})
            )
            return
        await self._conclude(call, Labelled.own({"error": "not_handed_off", "message": message}))

    async def _conclude(self, call: MessageRow, result: Labelled) -> None:
        """The session rises to the label of the result."""
        intent, ok = call.entry, "error" not in result.result
        assert isinstance(intent, ToolIntent), "calls are asked for"
        self.label = max(self.label, result.label)
        await sessions.taint(self.tx, call.session_id, self.label)
        run, said = self.run, ToolResult(intent.call.id, json.dumps(result.result, ensure_ascii=False))
        done = ToolFinished(intent, said, not ok, 0, self.label)
        await tool_calls.conclude(self.tx, call.session_id, run.principal_id, run.id, intent, said, self.label, done)


def task_question(
    run: Claim, assignment: Assignment, tool: str, arguments: JsonObject, preview: str, label: Label, lasts: timedelta
) -> ReviewQuestion:
    """A question of a task to its person."""
    person, what = run.principal_id, (tool, arguments, preview, label)
    question = ReviewQuestion(person, person, *what, lasts=lasts, act=ToolClass.READ, kind="review")
    return replace(question, session=run.session_id, address=assignment.address, task=run.id)


def _parsed(call: MessageRow) -> SystemCall | BadSystemCall:
    try:
        return parse_system_call(call.tool or "", call.text)
    except BadSystemCall as error:
        return error


def _child_result(child: ChildRow) -> JsonObject:
    """The result of a subtask as its parent gets it."""
    told: JsonObject = {"task": child.name, "agent": child.agent, "status": child.status.value}
    if child.storage_paths:
        told = {**told, "files": [*child.storage_paths]}
    if child.status is Status.COMPLETED:
        return {**told, "result": (child.result or "")[:LONGEST_RESULT]}
    return {**told, "error": (child.error or child.status.value)[:LONGEST_RESULT]}
