"""A run of a node: turns of its agent, the system calls between them, and the folder with its files.

If a node was stopped during a call that acts outside, a person decides whether that runs again.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from gateway.agent.conversation.context import own_words
from gateway.agent.limits import TREE_USD, dollars, used_up
from gateway.agent.loop import RepeatApprovals
from gateway.agent.policy import Act
from gateway.agent.toolbox import ApprovedCall
from gateway.agent.work.agents import Agents
from gateway.agent.work.task_trees import SYSTEM_TOOL_SPECS, BadSystemCall, parse_system_call
from gateway.config.failpoints import Step
from gateway.domain.conversation.model import PromptPart
from gateway.domain.conversation.tools import Effect, ToolClass
from gateway.domain.conversation.transcript import AssistantText, ToolFinished, ToolIntent, ToolResult
from gateway.domain.errors import SupaclawError
from gateway.domain.ids import TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.work.tasks import Assignment, Claim, Status, TurnResult
from gateway.domain.work.trees import FILES, MAIN, MOST_FILES, DoubtAnswer, LoadSkill
from gateway.flow.approvals import Questions
from gateway.flow.engine import Engine
from gateway.flow.trees.system_calls import NextStep, NodeCompleted, ReviewUnanswered, SystemCalls, task_question
from gateway.flow.turn.loop import SizedModel, Turn
from gateway.flow.turn.opening import AgentPart, OpenedTurn, Opening, raise_label
from gateway.flow.turn.runner import AgentParts
from gateway.store.connection.pool import Connection, Database
from gateway.store.transcript import sessions, tool_calls
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.store.trust.reviews import BUDGET, DOUBT, ReviewRow
from gateway.store.work import tasks, trees
from gateway.workspace.agents import AgentFile
from gateway.workspace.files.copies import zip_members
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.skills.folder import manifest, skill_of

RAN_RESULT = {"ran": True, "message": "A person says that this call took effect. Its result is lost; don't repeat it."}

WRITERS = frozenset({"write_file", "bash", "exec", "spawn"})
"""The tools that can write into the folder."""


@dataclass(frozen=True, slots=True)
class Doubts:
    """Asks a person about calls of nodes that may have run before a crash, and applies the answers.

    Nothing is repeated without their approval, and an approval counts for one run: if that is stopped too, they are
    asked again.
    """

    engine: Engine
    questions: Questions

    async def settle(self, turn: Turn, assignment: Assignment) -> RepeatApprovals | NextStep | TurnResult:
        """The calls that may run now, or why the node can't continue yet.

        A person is asked only after the time limit of the call, since it may still be running until then.
        """
        opened, toolbox = turn.opened, turn.environment.toolbox
        calls = [intent for intent in opened.pending() if not intent.handed]
        once = [intent for intent in calls if toolbox.effect(intent.call.name) is Effect.ONCE]
        acts = {each: await toolbox.describe(each.call, opened.caller(turn.fence)) for each in once}
        found = {each: act for each, act in acts.items() if act is not None}
        harmless: RepeatApprovals = {each.ordinal: None for each, act in acts.items() if act is None}
        if not found:
            return harmless
        await turn.fence.outlast(max((toolbox.seconds_under_way(act.tool) for act in found.values()), default=0.0))
        settled = await self.engine.database.run(lambda tx: self._settle(tx, opened, assignment, found))
        return settled if isinstance(settled, NextStep | TurnResult) else {**harmless, **settled}

    async def _settle(
        self, tx: Connection, opened: OpenedTurn, assignment: Assignment, found: Mapping[ToolIntent, Act]
    ) -> RepeatApprovals | NextStep | TurnResult:
        run = opened.run
        label = await sessions.lock_for(tx, opened.session, run, above=True)
        await tasks.progress(tx, run)
        asked = {each: await self._asked(tx, run, assignment, each, act, label) for each, act in found.items()}
        questions = [row for row in asked.values() if row.kind == "review"]
        answers = {row.name: _verdict(row) for row in questions}
        if any(row.state == "open" for row in questions):
            await tasks.suspend(tx, run, Status.NEEDS_HUMAN_REVIEW)
            return NextStep.ASK
        for name, answer in answers.items():
            if answer is None:
                return TurnResult.failed(f"nobody answered {name} in time")
            if answer is DoubtAnswer.GIVE_UP:
                return TurnResult.failed(f"a call may have run before a restart, and {name} gave it up")
        if ran := [intent for intent, row in asked.items() if answers.get(row.name) is DoubtAnswer.RAN]:
            for intent in ran:
                result = ToolResult(intent.call.id, json.dumps(RAN_RESULT))
                done = ToolFinished(intent, result, failed=False, duration_ms=0, label=label)
                await tool_calls.conclude(tx, opened.session, run.principal_id, run.id, intent, result, label, done)
            return NextStep.GO_ON
        return {intent.ordinal: await _allowed(tx, found[intent], row) for intent, row in asked.items()}

    async def _asked(
        self, tx: Connection, run: Claim, assignment: Assignment, intent: ToolIntent, act: Act, label: Label
    ) -> ReviewRow:
        """The question about this call, asked again if its approval was used, or its request for permission."""
        lasts, now = self.questions.settings().expire, self.engine.clock.now()
        arguments: JsonObject = {"tool": act.tool, "arguments": storable(intent.call.arguments)}
        question = task_question(run, assignment, DOUBT, arguments, storable(act.change.preview), label, lasts)
        question = replace(question, base=act.change.base, ordinal=intent.ordinal, act=act.kind)
        row = await reviews.lock(tx, (await reviews.ask(tx, question, now)).id)
        used = row.kind == "review" and row.started_at is not None
        return await reviews.reopen(tx, row, now + lasts) if used else row


async def _allowed(tx: Connection, act: Act, row: ReviewRow) -> ApprovedCall | None:
    """Use the approval. None for a call that only asked for permission: it didn't run, and asks again."""
    if row.kind == "approval":
        return None
    await reviews.start(tx, row.id)
    return ApprovedCall(act.kind, row.base)


def _verdict(row: ReviewRow) -> DoubtAnswer | None:
    if row.response is None:
        return None
    return DoubtAnswer.of(approved=bool(row.response["approved"]), comment=str(row.response["comment"]))


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The folder of one node; its first file creates it, and it is deleted with the tree."""

    workspace: Workspace
    path: str

    @classmethod
    async def of(cls, database: Database, workspace: Workspace, task: TaskId) -> "TaskFolder":
        """The folder in this workspace, below `FILES`."""
        master = await database.read(lambda conn: trees.master_of(conn, task))
        return cls(workspace, f"{FILES}/{master}/{task}")

    def hint(self, tools: Set[str] | None) -> str:
        """The sentence about it for an agent with these tools (None: all of them); "" if none of them writes."""
        return f"Files that belong to the result go in {self.path}/." if tools is None or tools & WRITERS else ""

    async def note(self, database: Database, opening: Opening) -> None:
        """Record the files in it on the run's task, the first `MOST_FILES` by name, and raise its label to theirs.

        The names of files are part of the result. Raises `RunLost`.
        """
        try:
            found = await asyncio.to_thread(zip_members, self.workspace.root, self.path)
        except WorkspaceError:  # no such folder, or too much in it to list
            return
        files = [str(file.path) for file in found[:MOST_FILES]]
        folders = {self.path, *(path.rpartition("/")[0] for path in files)}
        label = max([await self.workspace.labels.of_names(folder) for folder in folders])

        async def work(tx: Connection) -> None:
            await raise_label(tx, opening.run, opening.session, label)
            await trees.keep_files(tx, opening.run, files)

        await database.run(work)


AGENTS = "Agents for create_subtask and handoff:"
LONGEST_WORD = 20
NO_AGENT = "there is no agent {}, or its file is wrong or switched off"

AgentModel: TypeAlias = Callable[[str | None, float, int | None], SizedModel | None]
"""The model of an agent of a task tree, by its name, temperature and token limit; None if none is connected."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One run of a node; the caller stores how the node ended."""

    engine: Engine
    agents: AgentParts
    model: AgentModel
    run: Claim
    assignment: Assignment
    folder: TaskFolder

    async def ended(self, opened: OpenedTurn) -> tuple[OpenedTurn, TurnResult] | None:
        """Run its turns. Returns how it ended; None if it waits, is to be run again, or has ended already.

        Raises `RunLost`.
        """
        doubts = Doubts(self.engine, self.agents.questions)
        while True:
            agents = await self._usable()
            if (agent := agents.get(self.run.agent)) is None:
                return opened, TurnResult.failed(NO_AGENT.format(self.run.agent))
            turn = await self.agents.runner.begin(opened.with_agent(await self._part(agent, agents)))
            step = await doubts.settle(turn, self.assignment)
            if not isinstance(step, NextStep | TurnResult):
                step = await self._turned(turn, agent, step)
            match step:
                case NextStep.GO_ON:
                    again = await self.engine.database.run(turn.opened.opening.open)
                    if again is None:
                        return None
                    opened = again
                case NextStep.ASK:
                    await self.agents.questions.look()
                    return None
                case NextStep.WAIT:
                    return None
                case ended:
                    return turn.opened, ended

    async def _turned(self, turn: Turn, agent: AgentFile, allowed: RepeatApprovals) -> NextStep | TurnResult:
        result = await self._turn(turn, agent, allowed)
        if self.assignment.fork is None:
            await self.folder.note(self.engine.database, turn.opened.opening)
        # A subtask or the parent may run on another machine.
        await self.agents.file_sync.after_turn(self.run.principal_id)
        self.engine.failpoints.reach(Step.NODE_TURNED)
        return await self._follow_up(turn.opened, agent, result)

    @property
    def _registry(self) -> Agents:
        return self.agents.environments.of(self.run.principal_id).agents

    async def _usable(self) -> dict[str, AgentFile]:
        """The agents that the person of this run may use, by slug."""
        owner = self.engine.people.is_owner(self.run.principal_id)
        return {each.slug: each if owner else each.of_member for each in await self._registry.usable()}

    async def _part(self, agent: AgentFile, agents: Mapping[str, AgentFile]) -> AgentPart:
        part = chat_part(agent, await self._registry.label(agent), agent.skills or ())
        others = [await self._offered(other) for slug, other in agents.items() if slug != self.run.agent]
        heading = [own_words(AGENTS)] if others else []
        parts = (*part.parts, *heading, *others, own_words(self.folder.hint(part.tools)))
        return replace(part, parts=parts, fork=self.assignment.fork, system_tools=SYSTEM_TOOL_SPECS)

    async def _offered(self, agent: AgentFile) -> PromptPart:
        """An agent that another may give work to; only the first word of its name is told if its file is left out."""
        label, name = await self._registry.label(agent), re.split(r"\W", agent.slug[:LONGEST_WORD])[0]
        text = f"- {agent.slug}: {agent.head.description}"
        return PromptPart(text, label, f"the agent {name}", agent.path, agent.sha256)

    async def _turn(self, turn: Turn, agent: AgentFile, allowed: RepeatApprovals) -> TurnResult | None:
        """The agent's answer; None if a system call of an earlier run has to be carried out first."""
        pending = turn.opened.pending()
        if pending and all(intent.handed for intent in pending):
            return None
        head, other = agent.head, self.assignment.model
        tuned = agent.slug != MAIN or other is not None
        model = self.model(other or agent.model, head.temperature, head.max_tokens) if tuned else None
        return await self.agents.runner.answer(turn, model=model, allowed=allowed)

    async def _follow_up(
        self, opened: OpenedTurn, agent: AgentFile, result: TurnResult | None
    ) -> NextStep | TurnResult:
        """Carry out the system calls of the turn; without any it was the node's last."""
        run, clock = self.run, self.engine.clock
        calls = await self.engine.database.read(lambda conn: tool_calls.handed_open(conn, opened.session, run.id))
        if result is not None and result.limit == TREE_USD:
            return await self.engine.database.run(lambda tx: self._out_of_budget(tx, opened))
        if not calls:
            return NextStep.GO_ON if result is None else _ended(result)
        skills = {call.ordinal or 0: await self._skill(agent, call) for call in calls if call.tool == "load_skill"}
        label = opened.label if result is None else result.label
        usable, labels = await self._usable(), self._registry
        offered = {slug for slug, each in usable.items() if await labels.label(each) <= label}

        async def act(tx: Connection) -> NextStep | NodeCompleted | ReviewUnanswered:
            session = await sessions.lock_for(tx, opened.session, run, above=True)
            await tasks.progress(tx, run)
            lasts = self.agents.questions.settings().expire
            acts = SystemCalls(tx, run, self.assignment, session, offered, skills, clock.now(), lasts)
            return await acts.carry_out(calls)

        done = await self.engine.database.run(act)
        self.engine.failpoints.reach(Step.NODE_ACTED)
        match done:
            case NodeCompleted(output):
                return replace(result or TurnResult(AssistantText(output), label=label), entry=AssistantText(output))
            case ReviewUnanswered(name):
                return TurnResult.failed(f"nobody answered {name} in time")
            case after:
                return after

    async def _skill(self, agent: AgentFile, call: MessageRow) -> JsonObject:
        """The result of `load_skill`."""
        try:
            wanted = parse_system_call("load_skill", call.text)
            assert isinstance(wanted, LoadSkill), "parsed as that"
            if agent.skills is not None and wanted.name not in agent.skills:
                return {"error": "not_found", "message": "That is none of this agent's skills."}
            files = await self.agents.environments.own.skills.confirmed(wanted.name)
        except (BadSystemCall, SupaclawError) as error:
            return {"error": "refused", "message": str(error)}
        others = [path for path in sorted(files) if path != manifest(files)]
        return {"name": wanted.name, "instructions": skill_of(files).body, "files": others}

    async def _out_of_budget(self, tx: Connection, opened: OpenedTurn) -> NextStep | TurnResult:
        """Ask once for the whole tree whether its budget may be raised; all of its runs wait for the answer."""
        run, assignment = self.run, self.assignment
        await sessions.lock_for(tx, opened.session, run, above=True)
        place = await trees.place(tx, run.id)
        await trees.size(tx, place.master)  # one run of the tree at a time
        asked, limit = await reviews.of_tree(tx, place.master, BUDGET), place.budget_usd or 0.0
        if not used_up(place.spent_usd, place.budget_usd):  # raised meanwhile
            return NextStep.GO_ON
        if asked is not None and asked.state in ("denied", "expired", "closed"):
            return TurnResult.failed(f"the task's budget of {dollars(limit)} is used up, and no more was allowed")
        await tasks.suspend(tx, run, Status.NEEDS_HUMAN_REVIEW)
        if asked is None or asked.state != "open":
            payer, spent = self.engine.people.owner.id, f"{dollars(place.spent_usd)} of {dollars(limit)}"
            own = payer == run.principal_id
            whose = "" if own else f" of {opened.principal.name}"
            text = f"The task {assignment.name!r}{whose} has used {spent}. Allow another {dollars(limit)}?"
            lasts, address = self.agents.questions.settings().expire, assignment.address if own else None
            question = task_question(run, assignment, BUDGET, {"usd": limit}, text, opened.label, lasts)
            question = replace(question, asked=payer, address=address, act=ToolClass.ACT)
            await reviews.ask(tx, question, self.engine.clock.now())
        return NextStep.ASK


def chat_part(agent: AgentFile, label: Label, skills: Sequence[str] = ()) -> AgentPart:
    """The part of an agent in a chat's turn; `label` is that of its file, `skills` are those that it loads by name."""
    text = f"=== You are the agent {agent.slug} ===\n{agent.prompt}" if agent.prompt else ""
    own = PromptPart(text, label, "your own part", agent.path, agent.sha256)
    listed = f"Your skills, for load_skill: {', '.join(skills)}." if skills else ""
    tools = None if agent.head.tools is None else frozenset(agent.head.tools)
    return AgentPart((own, replace(own, text=listed)), tools, agent.skills is None, agent.head.budget, label)


def _ended(result: TurnResult) -> TurnResult:
    """A turn that a limit ended has failed."""
    if result.limit is None:
        return result
    return replace(TurnResult.failed(result.entry.text), reply=result.reply, label=result.label)
