"""`supaclaw eval`: measure memory on published sets of conversations: its search, without a language model, and the
facts that yours learns.

The conversations are imported into a temporary database on a server of its own.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean, median_high
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, TypeVar
from uuid import uuid4

from gateway.agent.conversation.compaction import LONGEST_SUMMARY, Cut, lasting_facts, read_summary, summary_prompt
from gateway.app.assembly import assemble, assemble_way_in, open_core, open_secrets
from gateway.app.parts.way_in import WayIn
from gateway.app.process import Process
from gateway.app.storage.database import temporary_database
from gateway.app.storage.offline import StoredSecrets
from gateway.background.cpu.executor import Cpu
from gateway.background.upkeep.health import Stop
from gateway.background.worker import Workplace
from gateway.beside import afterwards, beside
from gateway.cli.connections.database import run_quietly
from gateway.cli.storage.imports import make_findable
from gateway.cli.terminal.output import AsJson, argument, flag, option, print_result
from gateway.config.data.instance import StartHistory
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.conversation.inbound import MEMBER, Address, Inbound, Sender
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import InstanceId, PrincipalId, SessionId
from gateway.domain.memory.memories import DEFAULT_AGENT, Memory, MemoryFilter, SearchMode
from gateway.domain.principals import Label, Role
from gateway.flow.inbound.answers import Answers
from gateway.flow.people import meet
from gateway.flow.turn.loop import reply_of
from gateway.llm.auto import GUIDE
from gateway.llm.client import ModelClient, build_client
from gateway.llm.embedding import e5
from gateway.llm.vendors import cheap_model_beside
from gateway.logs import SecretMask
from gateway.memory import evaluation
from gateway.memory.evaluation import Conversation, Figures, Junk, judge_fact, mean_figures, measure_ranking
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Database
from gateway.store.memory import indexing, memories, search, vectors
from gateway.store.people import principals
from gateway.store.transcript import imports, messages
from gateway.store.transcript.imports import ImportedRow
from gateway.store.transcript.messages import MessageRow
from gateway.tools import discover
from gateway.workspace.template import fill_new_workspace

Result = TypeVar("Result")

HITS = 50
KINDS = ("user", "assistant")
BATCH, EMBED_BATCH = 500, 32
"""Rows that are counted, or embedded, at once; a signal waits for the latter."""

File = Annotated[Path, argument("The dataset, as published.", "FILE", exists=True, dir_okay=False)]
By = Annotated[SearchMode, option("hybrid, keyword or semantic.")]
Chats = Annotated[
    bool, flag("Ask each question twice in chats of a whole gateway, and measure what is recalled.", "--chats")
]
AtMost = Annotated[int | None, option("Only the first N questions.", "N", "--questions", min=1)]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of all questions with evidence, and by category; the milliseconds are of the database.

    `weak` is the share of them whose hits were reported as weak, `weak_abstentions` that of the questions without an
    answer. In `chats` a recall without rows counts as weak, and the milliseconds are of two turns. `rows` are found on
    average; `own` of them are questions and answers of the evaluation itself.
    """

    mode: str
    chats: bool
    rows: float
    own: float
    embedder: str | None
    conversations: int
    turns: int
    questions: int
    all: Figures
    by_category: dict[str, Figures]
    counts: dict[str, int]
    weak: float
    abstentions: int
    weak_abstentions: float | None
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class _Score:
    """One question's figures; None if nothing answers it. `own` rows are questions and answers of the evaluation."""

    category: str
    figures: Figures | None
    weak: bool
    rows: int
    own: int
    search_ms: float


def locomo(
    file: File, mode: By = SearchMode.HYBRID, questions: AtMost = None, chats: Chats = False, as_json: AsJson = False
) -> None:
    """Measure recall on a LoCoMo file."""
    _evaluate(_first(evaluation.locomo(file.read_bytes()), questions), mode, chats, as_json)


def longmemeval(
    file: File, mode: By = SearchMode.HYBRID, questions: AtMost = None, chats: Chats = False, as_json: AsJson = False
) -> None:
    """Measure recall on a LongMemEval file."""
    _evaluate(_first(evaluation.longmemeval(file.read_bytes()), questions), mode, chats, as_json)


def junk(
    file: File,
    sessions: Annotated[int | None, option("Only the first N sessions.", "N", "--sessions", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how many facts learned from a file nobody would miss.

    Your model of summaries learns them.
    """
    content = file.read_bytes()
    try:
        conversations = evaluation.locomo(content)
    except OwnerMustAct:
        conversations = evaluation.longmemeval(content)
    found = _stoppable(_judge(conversations, sessions))
    head = (
        f"{found.sessions} sessions, {found.facts} facts by {found.model}, ${found.cost_usd:.4f}: {found.rate:.2f} junk"
    )
    print_result(asdict(found), "\n".join([head, *(f"{n:5} {why}" for why, n in found.junk.items())]), as_json=as_json)


@dataclass(frozen=True, slots=True)
class JunkRate:
    """How many facts a model learned from how many sessions, those that nobody would miss by why, and what it cost."""

    model: str
    sessions: int
    facts: int
    junk: dict[str, int]
    rate: float
    cost_usd: float


async def _judge(conversations: Sequence[Conversation], limit: int | None) -> JunkRate:
    model, costs = await _summary_model(), list[float]()
    verdicts = list[Junk | None]()
    async with temporary_database("eval") as database:
        for conversation in conversations:
            _, sessions = await _store(database, conversation)
            earlier = list[str]()
            for session in sessions if limit is None else sessions[: limit - len(costs)]:
                rows = await database.read(partial(messages.transcript, session=session))
                prompt = summary_prompt(Cut(None, tuple(rows)), model.prompt_budget(), LONGEST_SUMMARY)
                reply = await reply_of(model, prompt)
                costs.append(reply.usage.cost_usd)
                person, agent = (
                    {word for row in rows if row.kind == kind for word in lexemes(row.text)} for kind in KINDS
                )
                for fact in lasting_facts(read_summary(reply.text) or {}):
                    verdicts.append(judge_fact(fact, earlier, person, agent))
                    earlier.append(fact)
    junk = Counter(verdict.value for verdict in verdicts if verdict is not None)
    rate = junk.total() / max(1, len(verdicts))
    return JunkRate(model.describe().chain[0], len(costs), len(verdicts), dict(junk), rate, sum(costs))


async def _summary_model() -> ModelClient:
    environment = Environment.read(os.environ)
    models = load(environment.config, os.environ, StoredSecrets(environment, os.environ)).models
    client = await build_client(models, os.environ, SystemClock())
    cheap = models.summary or cheap_model_beside(client.describe().chain[0], models.providers)
    return required(client.with_primary(cheap), OwnerMustAct("no model is connected; `supaclaw init` connects one"))


def _evaluate(conversations: Sequence[Conversation], mode: SearchMode, chats: bool, as_json: bool) -> None:
    result = _stoppable(_run(conversations, mode, chats))
    print_result(asdict(result), "\n".join(_lines(result)), as_json=as_json)


def _stoppable(work: Coroutine[object, object, Result]) -> Result:
    """Run `work`; SIGTERM and SIGHUP end it like Ctrl-C, and with it the temporary server."""

    async def run() -> Result:
        task = asyncio.current_task()
        assert task is not None, "this runs in a task"
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return run_quietly(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _first(conversations: Sequence[Conversation], limit: int | None) -> list[Conversation]:
    left, kept = limit if limit is not None else sum(len(each.questions) for each in conversations), []
    for each in conversations:
        if left > 0 and each.questions:
            kept.append(Conversation(each.name, each.turns, each.questions[:left]))
            left -= len(each.questions)
    if not any(question.evidence for each in kept for question in each.questions):
        raise OwnerMustAct("The file has no question with evidence")
    return kept


async def _run(conversations: Sequence[Conversation], mode: SearchMode, chats: bool) -> Evaluation:
    asked = list[_Score]()
    async with temporary_database("eval") as database, AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(_gateway(database, mode)) if chats else None
        for conversation in conversations:
            owner, _ = await _store(database, conversation)
            if mode is not SearchMode.KEYWORD:
                await _embed_rows(database)
            asked += await _ask(database, owner, conversation, mode, gateway)
    return _evaluation(conversations, asked, mode, chats)


async def _store(database: Database, conversation: Conversation) -> tuple[PrincipalId, list[SessionId]]:
    """Store a conversation for a new person, as an import would; returns the person and the sessions."""
    sessions = list[SessionId]()
    async with database.transaction() as tx:
        owner = await principals.add(tx, Role.MEMBER, conversation.name, [])
        for _, said in groupby(conversation.turns, key=lambda turn: turn.session):
            rows = [
                ImportedRow(turn.id, "user" if turn.role == "user" else "assistant", turn.text, turn.at, Label.KNOWN)
                for turn in said
            ]
            sessions.append(await imports.start(tx, owner, DEFAULT_AGENT, rows[0].at))
            await imports.append(tx, sessions[-1], owner, "import:eval", rows)
    await make_findable(database)
    while await database.run(lambda tx: indexing.count_words(tx, BATCH)):
        pass
    return owner, sessions


async def _embed_rows(database: Database) -> None:
    """Store the vector of every row, by the model that is shipped with the gateway, in this process."""
    model = await database.run(lambda tx: vectors.request_model(tx, e5.NAME, e5.DIMENSIONS))
    while rows := await database.read(lambda conn: vectors.list_unembedded(conn, EMBED_BATCH)):
        found = await asyncio.to_thread(e5.vectors, e5.PASSAGE, [row.text for row in rows])
        async with database.transaction() as tx:
            await vectors.put(tx, model, rows, found)
    await database.run(lambda tx: vectors.settle(tx, model))


@dataclass(frozen=True, slots=True)
class _Gateway:
    """A gateway in this process, whose model is the built-in guide, so that it calls none."""

    database: Database
    way_in: WayIn
    answers: Answers

    async def recalled(self, person: PrincipalId, question: str) -> list[Memory]:
        """The rows that a model is given with a question in a new chat, best first, when it is asked again."""
        await self._asked(person, question)
        await self.database.run(lambda tx: indexing.index_turns(tx, person, indexing.NEWEST))
        asked = await self._asked(person, question)
        found = await self.database.read(lambda conn: memories.by_id(conn, asked.remembered))
        return [found[id] for id in asked.remembered]

    async def _asked(self, person: PrincipalId, question: str) -> MessageRow:
        """The answer to a question in a new chat."""
        id, sender = str(uuid4()), Sender(f"{MEMBER}{person}", "Eval")
        at, now = Address("terminal", "eval", id), datetime.now(UTC)
        [accepted] = await self.way_in.inbound.accept(
            [Inbound(at, sender, question, id, now, private=True, as_owner=True)]
        )
        answer = (await self.answers.wait(accepted)).message_id
        assert answer is not None, "the guide answers every message"
        row = await self.database.read(lambda conn: messages.get(conn, answer))
        assert row is not None, "answers are never deleted"
        return row


@asynccontextmanager
async def _gateway(database: Database, mode: SearchMode) -> AsyncIterator[_Gateway]:
    """Yield a gateway on this database, with files of its own."""
    with TemporaryDirectory(prefix="supaclaw-eval-") as folder:
        environment = Environment.read({"SUPACLAW_DATA": folder, "SUPACLAW_CONFIG": f"{folder}/config.json"})
        models = {"primary": GUIDE, "embedding": "none" if mode is SearchMode.KEYWORD else "local"}
        environment.config.write_text(json.dumps({"models": models}))
        fill_new_workspace(environment.workspace)
        people, mask, instance = await meet(database, "Owner", {}), SecretMask(), InstanceId(uuid4())
        secrets = open_secrets(environment, database, people, mask, supabase=False)
        core = await open_core(environment, Workplace(database, "gateway", instance), people, instance, secrets, mask)
        parts = assemble(core, starts=StartHistory(), stop=Stop(), families=discover(), cpu=Cpu())
        async with afterwards(Process(parts).close), beside(parts.work.worker.run()):
            yield _Gateway(database, assemble_way_in(parts), Answers(database, core.live))


async def _ask(
    database: Database, owner: PrincipalId, conversation: Conversation, mode: SearchMode, gateway: _Gateway | None
) -> list[_Score]:
    session_of = {turn.id: turn.session for turn in conversation.turns}
    id_of = {(turn.at, turn.text): turn.id for turn in conversation.turns}
    asked = []
    model = None if mode is SearchMode.KEYWORD else e5.NAME
    async with database.connection() as conn:
        for question in conversation.questions:
            began = perf_counter()
            if gateway is not None:
                rows = await gateway.recalled(owner, question.text)
                weak = not rows
            else:
                vector = tuple(e5.vectors(e5.QUERY, [question.text])[0]) if model else None
                began = perf_counter()
                words = () if mode is SearchMode.SEMANTIC else lexemes(question.text)
                found = await search.hybrid(conn, owner, words, MemoryFilter(), HITS, vector=vector, model=model)
                rows, weak = [hit.memory for hit in found.hits], found.weak
            milliseconds = 1000 * (perf_counter() - began)
            ranked = [id for row in rows if (id := id_of.get((row.created_at, row.text)))]
            figures = measure_ranking(ranked, question.evidence, session_of) if question.evidence else None
            asked.append(_Score(question.category, figures, weak, len(rows), len(rows) - len(ranked), milliseconds))
    return asked


def _evaluation(
    conversations: Sequence[Conversation], asked: Sequence[_Score], mode: SearchMode, chats: bool
) -> Evaluation:
    by_category: dict[str, list[Figures]] = {}
    for each in sorted(asked, key=lambda each: each.category):
        if each.figures is not None:
            by_category.setdefault(each.category, []).append(each.figures)
    answered = [each.weak for each in asked if each.figures is not None]
    abstentions = [each.weak for each in asked if each.figures is None]
    times = sorted(each.search_ms for each in asked)
    return Evaluation(
        mode=mode,
        chats=chats,
        rows=fmean(each.rows for each in asked),
        own=fmean(each.own for each in asked),
        embedder=None if mode is SearchMode.KEYWORD else e5.NAME,
        conversations=len(conversations),
        turns=sum(len(each.turns) for each in conversations),
        questions=len(answered),
        all=mean_figures([each for figures in by_category.values() for each in figures]),
        by_category={name: mean_figures(figures) for name, figures in by_category.items()},
        counts={name: len(figures) for name, figures in by_category.items()},
        weak=sum(answered) / len(answered),
        abstentions=len(abstentions),
        weak_abstentions=sum(abstentions) / len(abstentions) if abstentions else None,
        p50_ms=median_high(times),
        p95_ms=times[int(0.95 * len(times))],
    )


def _lines(result: Evaluation) -> list[str]:
    rows = [("all", result.questions, result.all)]
    rows += [(name, result.counts[name], figures) for name, figures in result.by_category.items()]
    weak = f"said to be weak: {result.weak:.3f} of the questions"
    if result.weak_abstentions is not None:
        weak += f", {result.weak_abstentions:.3f} of {result.abstentions} that have no answer"
    return [
        f"{result.conversations} conversations, {result.turns} turns; {result.mode}, "
        f"{result.embedder or 'no embedder'}",
        f"{'':26}{'n':>5} {'R@5':>6}{'R@10':>6}{'R@20':>6}{'hit@10':>7}{'nDCG':>6}{'MRR':>6}{'sessions@10':>12}",
        *(_line(*row) for row in rows),
        weak,
        f"{'two turns' if result.chats else 'search'} p50 {result.p50_ms:.1f} ms, p95 {result.p95_ms:.1f} ms",
        f"{result.rows:.2f} rows a question, {result.own:.2f} of them of this evaluation",
    ]


def _line(name: str, count: int, of: Figures) -> str:
    recalls = f"{of.recall_5:6.3f}{of.recall_10:6.3f}{of.recall_20:6.3f}"
    return f"{name:26}{count:5} {recalls}{of.hit:7.3f}{of.ndcg:6.3f}{of.mrr:6.3f}{of.session_recall:12.3f}"
