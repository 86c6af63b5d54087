"""The agent's loop over the transcript, tools and model of one turn, and the files and long messages in its prompt."""

import asyncio
from collections.abc import AsyncGenerator, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import monotonic
from typing import Protocol

from gateway.agent.conversation.context import file_index, own_words, person_part, system_prompt, to_messages, within
from gateway.agent.conversation.fit import fit, message_tokens
from gateway.agent.limits import Limits
from gateway.agent.loop import NOTHING_NEW, RepeatApprovals, run_turn
from gateway.agent.memory.search import MemoryQuery
from gateway.domain.conversation.inbound import PROGRAMS
from gateway.domain.conversation.model import (
    Highest,
    Image,
    Model,
    ModelEvent,
    Prompt,
    PromptPart,
    Reply,
    Restarted,
    SystemMessage,
    TextDelta,
    ToolSpec,
    UserMessage,
)
from gateway.domain.conversation.transcript import Attached, Entry, Steered, Summary, TurnEvent, UserText
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.marks import CopiedMarks, without_copied_marks
from gateway.domain.text.tokens import estimate
from gateway.flow.engine import Engine
from gateway.flow.live import TurnStarted
from gateway.flow.secrets.guard import CleanModel
from gateway.flow.turn.environment import AgentEnvironment
from gateway.flow.turn.opening import OpenedChat, OpenedTurn
from gateway.flow.turn.steps import Fence
from gateway.store.connection.pool import Connection
from gateway.store.files import attachments
from gateway.store.transcript import sessions, unread
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import steps, tasks
from gateway.tools import file_content, file_picture
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace

MAX_EXCERPT = 3_000
"""Characters of a file that a prompt shows; of a longer file it names only the path."""
MAX_EXCERPTS_OF_MESSAGE = 12_000
MAX_PICTURES = 8
MAX_FOLLOWED = 3
"""How often a turn answers anew because of messages that follow on what it answers."""
FILES_WAIT_SECONDS, FILES_POLL_SECONDS = 10.0, 0.2
"""How long an answer that is ready waits for the files of a message which follows."""


async def with_files(entries: Sequence[Entry], workspace: Workspace, asked: Set[MessageId]) -> list[Entry]:
    """The entries with excerpts of their files; pictures only for the messages `asked`, the newest."""
    shown: list[Entry] = []
    room = MAX_PICTURES
    for entry in reversed(entries):
        if isinstance(entry, UserText) and entry.attachments:
            images = await _pictures(entry.attachments, workspace, room) if entry.id in asked else ()
            room -= len(images)
            shown.append(replace(entry, attachments=await _with_text(entry.attachments, workspace), images=images))
        else:
            shown.append(entry)
    return shown[::-1]


async def _with_text(files: Sequence[Attached], workspace: Workspace) -> tuple[Attached, ...]:
    listed: list[Attached] = []
    room = MAX_EXCERPTS_OF_MESSAGE
    for file in files:
        text = await _short_text(file, workspace)
        room -= len(text)
        listed.append(replace(file, excerpt=text) if text and room >= 0 else file)
    return tuple(listed)


async def _short_text(file: Attached, workspace: Workspace) -> str:
    data = await file_content(workspace, file.text_path, 4 * MAX_EXCERPT + 1)
    text = data.decode("utf-8", "replace").strip("\n")
    return text if len(text) <= MAX_EXCERPT else ""


async def _pictures(files: Sequence[Attached], workspace: Workspace, most: int) -> tuple[Image, ...]:
    found: list[Image] = []
    for file in reversed(files):
        if len(found) < most:
            found += await file_picture(workspace, file.view_path)
    return tuple(reversed(found))


MAX_MESSAGE_TOKENS = 20_000
SHORTENED_CHARS = 2_000


async def shorten(rows: Sequence[MessageRow], workspace: Workspace) -> list[Entry]:
    """The rows as entries; a long text of a person becomes its beginning and the path of the whole.

    The path depends on the message alone, so a later turn has the same text.
    """
    # A token is at least one character, so most texts need no estimate.
    return [await _shorten_row(row, workspace) if len(row.text) > MAX_MESSAGE_TOKENS else row.entry for row in rows]


async def _shorten_row(row: MessageRow, workspace: Workspace) -> Entry:
    entry = row.entry
    if not isinstance(entry, UserText) or estimate(entry.text) <= MAX_MESSAGE_TOKENS:
        return entry
    path = f"uploads/message-{row.id}.txt"
    try:
        if await workspace.page(path, limit=1) is None:
            await workspace.write(path, entry.text, row.label, unlocked=True)
        where = f"the whole message, {len(entry.text):,} characters, is in {path}"
    except WorkspaceError as exc:
        where = f"the rest of {len(entry.text):,} characters could not be stored: {exc}"
    return replace(entry, text=f"{entry.text[:SHORTENED_CHARS]}\n[… {where}]")


MIN_PROMPT_TOKENS = 200
"""Tokens of the shortest usable prompt."""
LEAN_BELOW_TOKENS, LEAN_TOKENS = 12_288, 2_500
"""A model that takes shorter prompts than the first, so has a window of less than 16,384 tokens, gets standing
instructions and tools of at most the second; locked instructions stay whole nevertheless."""
JSON_ONLY = "A program reads your answer: it is JSON and nothing else, without a fence around it."


class SizedModel(Model, Protocol):
    """A model with a known prompt limit and price."""

    def prompt_budget(self) -> int:
        """Most tokens of a prompt, tools included, that leave room for an answer."""

    def highest(self, prompt: Prompt) -> Highest:
        """The highest cost of an answer to this prompt."""


async def reply_of(model: Model, prompt: Prompt) -> Reply:
    """The final reply of a model, without its stream."""
    async with aclosing(model.stream(prompt)) as events:
        replies = [event async for event in events if isinstance(event, Reply)]
    if not replies:
        raise RuntimeError("the model's stream ended without a reply")
    return replies[-1]


@dataclass(frozen=True, slots=True)
class UnmarkedModel:
    """Takes copied marks out; with `silence` also an answer that means none, for chats of people."""

    model: Model
    silence: bool

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events, without marks."""
        marks = CopiedMarks(self.silence)
        async with aclosing(self.model.stream(prompt)) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        if shown := marks.add(text):
                            yield TextDelta(shown)
                    case Reply():
                        if left := marks.end():
                            yield TextDelta(left)
                        yield replace(event, text=without_copied_marks(event.text, silence=self.silence))
                    case _:
                        marks = CopiedMarks(self.silence) if isinstance(event, Restarted) else marks
                        yield event


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a run: the state it starts from, and the environment it works with."""

    opened: OpenedTurn
    environment: AgentEnvironment
    persona: Sequence[PromptPart]
    """The persona files, HEARTBEAT.md last."""
    skills: PromptPart
    """The index of skills."""
    fence: Fence
    question: MemoryQuery
    """The messages as a question to memory."""


@dataclass
class TurnLoop:
    """One run of the loop; `budget` limits a prompt to fewer tokens than the model takes."""

    engine: Engine
    turn: Turn
    model: SizedModel
    limits: Limits
    budget: int | None
    allowed: RepeatApprovals

    def __post_init__(self) -> None:
        is_lean = self.model.prompt_budget() < LEAN_BELOW_TOKENS
        self.opened = self.turn.opened
        self.environment = self.turn.environment.lean if is_lean else self.turn.environment
        agent = self.opened.agent
        self._zone = self.environment.zone()
        own = self.environment.toolbox.specs
        brought = (*self.opened.client.tools, *(agent.system_tools if agent else ()))
        theirs = [tool for tool in brought if tool.name not in {spec.name for spec in own}]
        self._tools, self._handed = (*own, *theirs), frozenset(tool.name for tool in theirs)
        self._own_tokens = self.environment.schema_tokens + sum(tool.tokens for tool in theirs)
        self._further = self._found([row.entry for row in self.opened.transcript], self.opened.label)
        self._pending = self.opened.pending()
        self._fresh = not self._pending
        parts = self._parts()
        if is_lean:
            parts = within(parts, max(LEAN_TOKENS - self._tool_tokens, MIN_PROMPT_TOKENS), estimate)
        self._system = SystemMessage(system_prompt(parts, self.opened.label))
        self._asked: Prompt | None = None
        self._followed = 0

    def _parts(self) -> Sequence[PromptPart]:
        """The parts of the standing instructions; those that change more often come later."""
        opened, (*files, beat) = self.opened, self.turn.persona
        return (
            *files,
            opened.reminder.standing,
            person_part(opened.principal, self._zone, opened.at.channel if isinstance(opened, OpenedChat) else None),
            self.turn.skills,
            file_index(opened.files, opened.all_files, opened.label),
            *([own_words(JSON_ONLY)] if opened.client.answer_format else []),
            *(opened.agent.parts if opened.agent else ()),
            *([beat] if opened.heartbeat else []),
        )

    @property
    def _tool_tokens(self) -> int:
        return self._own_tokens + sum(tool.tokens for tool in self._further)

    @property
    def room(self) -> int:
        """Tokens of a prompt for the transcript: the rest beside the system prompt, at least half."""
        budget = self._budget()
        return max(budget - estimate(self._system.text), budget // 2)

    @property
    def prompted(self) -> int:
        """Tokens of the last prompt, tools included."""
        said = self._asked.messages if self._asked else ()
        return self._tool_tokens + sum(message_tokens(message, estimate) for message in said)

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events of `run_turn`; raises `ModelsExhausted` and `RunLost`."""
        once = (self.environment.toolbox.seconds_under_way(each.call.name) for each in self._pending if not each.handed)
        await self.turn.fence.outlast(max(once, default=0.0))
        rows = (*self.opened.history, *_in_order(self.opened.transcript, self.opened.run.id))
        entries = self._reminded(await self._shown(rows, set(self.opened.asked_ids)))
        silence = self.opened.at is not None and self.opened.at.channel not in PROGRAMS
        turn = run_turn(
            entries,
            model=CleanModel(
                UnmarkedModel(self.model, silence), self.environment.toolbox.clean, self.environment.leaks
            ),
            toolbox=self.environment.toolbox,
            render=self._render,
            steer=self._steer,
            follow=self._follow,
            caller=replace(self.opened.caller(self.turn.fence), ask_model=self._ask),
            limits=self.limits,
            pending=self._pending,
            allowed=self.allowed,
            spent=self.opened.spent,
            client_tools=self._handed,
        )
        async with aclosing(turn) as events:
            async for event in events:
                yield event

    async def _ask(self, instructions: str, text: str) -> str:
        """A `Caller.ask_model`, whose cost is the run's."""
        prompt = Prompt((SystemMessage(instructions), UserMessage(text)))
        toolbox, run = self.environment.toolbox, self.opened.run
        reply = await reply_of(CleanModel(self.model, toolbox.clean, self.environment.leaks), prompt)

        async def note(tx: Connection) -> None:
            await tasks.progress(tx, run)
            await steps.model_called(tx, run, reply)

        await self.turn.fence.commit(note)
        return reply.text

    def _render(self, entries: Sequence[Entry], label: Label) -> Prompt:
        self._further = self._found(entries, label)
        whole = (self._system, *to_messages(entries, self._zone))
        summaries = sum(isinstance(entry, Summary) for entry in entries[:1])
        messages, client = fit(whole, self._budget(), estimate, pinned=summaries), self.opened.client
        self._asked = Prompt(messages, (*self._tools, *self._further), client.must_call, client.answer_format)
        return self._asked

    def _found(self, entries: Sequence[Entry], label: Label) -> tuple[ToolSpec, ...]:
        """The tools of sources in the next prompt."""
        found = self.environment.toolbox.source_specs(entries, label)
        return tuple(spec for spec in found if spec.name not in self._handed)

    def _budget(self) -> int:
        """Tokens of a prompt without the tools."""
        accepted = self.model.prompt_budget()
        most = accepted if self.budget is None else min(accepted, self.budget)
        return max(most - self._tool_tokens, MIN_PROMPT_TOKENS)

    async def _steer(self) -> Steered:
        """Messages that arrived since the last model call; none at the first, as the turn has just been opened."""
        if self._fresh:
            self._fresh = False
            return NOTHING_NEW
        if not await self.engine.database.read(lambda conn: unread.left(conn, self.opened.session)):
            return NOTHING_NEW
        rows = await self.engine.database.run(self._take)
        if rows:
            self.engine.live.publish(self.opened.session, TurnStarted(tuple(row.id for row in rows), self.opened.run))
        entries = await self._shown(rows, {row.id for row in rows})
        label = max((row.label for row in rows), default=Label.OWNER)
        return Steered(tuple(entry for entry in entries if isinstance(entry, UserText)), label)

    async def _follow(self) -> Steered:
        """Messages of the same thought that came before its answer; waits a while for their files.

        The gateway that answers a chat stores what is said there, so it knows if nothing has come.
        """
        self._followed += 1
        alone = self.opened.solo or self.engine.live.newest(self.opened.session) == self.opened.asked_ids[-1]
        if self.opened.at is None or alone or self._followed > MAX_FOLLOWED:
            return NOTHING_NEW
        until = monotonic() + FILES_WAIT_SECONDS
        while True:
            if not await self.engine.database.read(lambda conn: unread.follows(conn, self.opened.session)):
                break
            if (found := await self._steer()).messages or monotonic() > until:
                return found
            await asyncio.sleep(FILES_POLL_SECONDS)
        return NOTHING_NEW

    def _reminded(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries with recalled memories before the first message of the turn."""
        first, recalled = self.opened.asked[0].id, self.opened.reminder.recalled.text
        if not recalled:
            return list(entries)
        return [
            replace(entry, recalled=recalled) if isinstance(entry, UserText) and entry.id == first else entry
            for entry in entries
        ]

    async def _shown(self, rows: Sequence[MessageRow], asked: Set[MessageId]) -> list[Entry]:
        reads = bool(self.environment.toolbox.specs)  # without tools a file can't be read
        entries = await shorten(rows, self.environment.workspace) if reads else [row.entry for row in rows]
        return await with_files(entries, self.environment.workspace, asked)

    async def _take(self, tx: Connection) -> list[MessageRow]:
        await sessions.lock_for(tx, self.opened.session, self.opened.run)
        return await attachments.with_attachments(tx, await unread.take(tx, self.opened.session, joining=True))


def _in_order(rows: Sequence[MessageRow], run: TaskId) -> Sequence[MessageRow]:
    """Proactive messages of the time since go before the question: a model answers the last message."""
    asked = next((place for place, row in enumerate(rows) if row.open), len(rows))
    aside = [row for row in rows[asked:] if row.kind == "assistant" and not row.final and row.task_id != run]
    return (*rows[:asked], *aside, *(row for row in rows[asked:] if row not in aside)) if aside else rows
