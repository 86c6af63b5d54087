"""Evaluates memory: conversations with known evidence (LoCoMo, LongMemEval), scores of a ranking, and of facts."""

import re
from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import log2
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import storable
from gateway.memory.lexemes import lexemes
from gateway.memory.questions import is_question
from gateway.memory.wording import says_same

Parsed = TypeVar("Parsed")

_LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance; `id` is unique in its conversation."""

    id: str
    session: str
    role: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the turns that answer it; without `evidence`, it must stay unanswered."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The whole memory of one person, in order of time, and the questions on it."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def locomo(content: bytes) -> list[Conversation]:
    """The conversations of a LoCoMo file; questions without evidence are left out. Raises `OwnerMustAct`."""
    return [_of_locomo(sample) for sample in _parsed(TypeAdapter(list[_Sample]), content, "LoCoMo")]


def longmemeval(content: bytes) -> list[Conversation]:
    """The questions of a LongMemEval file, each with its own history; those without evidence are left out.

    An abstention (`…_abs`) names turns that only look like an answer: it has no evidence. Raises `OwnerMustAct`.
    """
    instances = _parsed(TypeAdapter(list[_Instance]), content, "LongMemEval")
    return [conversation for each in instances if (conversation := _of_longmemeval(each)).questions]


class _LocomoTurn(BaseModel):
    dia_id: str
    speaker: str
    text: str
    blip_caption: str = ""


class _LocomoQuestion(BaseModel):
    question: str
    category: int
    evidence: list[str] = []


class _Sample(BaseModel):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_LocomoQuestion]


class _Said(BaseModel):
    role: str
    content: str
    has_answer: bool | None = None


class _Instance(BaseModel):
    question_id: str
    question_type: str
    question: Annotated[str, BeforeValidator(str)]
    haystack_dates: list[str]
    haystack_session_ids: list[str]
    haystack_sessions: list[list[_Said]]


def _parsed(adapter: TypeAdapter[Parsed], content: bytes, name: str) -> Parsed:
    try:
        return adapter.validate_json(content)
    except ValidationError as exc:
        first = exc.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise OwnerMustAct(f"This is not a {name} file: {place}: {first['msg']}") from None


def _of_locomo(sample: _Sample) -> Conversation:
    turns = tuple(_locomo_turns(sample.conversation))
    known = {turn.id for turn in turns}
    questions = []
    for each in sample.qa:
        named = (f"D{int(s)}:{int(t)}" for text in each.evidence for s, t in _TURN_ID.findall(text))
        if evidence := known.intersection(named):
            category = _LOCOMO_CATEGORIES.get(each.category, str(each.category))
            questions.append(Question(each.question, category, frozenset(evidence)))
    return Conversation(sample.sample_id, turns, tuple(questions))


def _locomo_turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    numbers = sorted(int(match[1]) for key in conversation if (match := re.fullmatch(r"session_(\d+)", key)))
    for number in numbers:
        began = _time(conversation.get(f"session_{number}_date_time", ""), "%I:%M %p on %d %B, %Y")
        utterances = TypeAdapter(list[_LocomoTurn]).validate_python(conversation[f"session_{number}"])
        for place, turn in enumerate(utterances):
            picture = f" [shared {turn.blip_caption}]" if turn.blip_caption else ""
            text = f"{turn.speaker}: {turn.text}{picture}"
            yield Turn(turn.dia_id, str(number), "user", text, began + timedelta(minutes=place))


def _of_longmemeval(instance: _Instance) -> Conversation:
    turns, evidence = [], set()
    dated = zip(instance.haystack_session_ids, instance.haystack_dates, instance.haystack_sessions, strict=False)
    for number, (name, date, utterances) in enumerate(sorted(dated, key=lambda each: each[1])):
        began = _time(re.sub(r" \(\w+\)", "", date), "%Y/%m/%d %H:%M") + timedelta(microseconds=number)
        for place, each in enumerate(utterances):
            id = f"{number}:{name}:{place}"
            at = began + timedelta(minutes=place)
            turns.append(Turn(id, f"{number}:{name}", each.role, storable(each.content), at))
            if each.has_answer:
                evidence.add(id)
    abstention = instance.question_id.endswith("_abs")
    named = frozenset() if abstention else frozenset(evidence)
    questions = (Question(instance.question, instance.question_type, named),) if named or abstention else ()
    return Conversation(instance.question_id, tuple(turns), questions)


def _time(text: str, form: str) -> datetime:
    """A time, which matters for the order only; an unreadable one is in the past."""
    with suppress(ValueError):
        return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
    return datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Figures:
    """Scores of one question, or the means of several; 0–1 each.

    Recall is the share of the evidence among the first 5, 10 or 20; `hit` says whether any is among the first ten;
    `session_recall` is of the sessions that hold the evidence, among the first ten sessions.
    """

    recall_5: float
    recall_10: float
    recall_20: float
    hit: float
    ndcg: float
    mrr: float
    session_recall: float


def measure_ranking(ranked: Sequence[str], evidence: Collection[str], session_of: dict[str, str]) -> Figures:
    """The scores of a ranking; `ranked` and `evidence`, which isn't empty, are ids of turns."""
    found = [turn in evidence for turn in ranked]
    gain = sum(1 / log2(place + 2) for place, right in enumerate(found[:10]) if right)
    best = sum(1 / log2(place + 2) for place in range(min(len(evidence), 10)))
    sessions = list(dict.fromkeys(session_of[turn] for turn in ranked))[:10]
    wanted = {session_of[turn] for turn in evidence}
    return Figures(
        recall_5=sum(found[:5]) / len(evidence),
        recall_10=sum(found[:10]) / len(evidence),
        recall_20=sum(found[:20]) / len(evidence),
        hit=float(any(found[:10])),
        ndcg=gain / best,
        mrr=next((1 / (place + 1) for place, right in enumerate(found) if right), 0.0),
        session_recall=len(wanted.intersection(sessions)) / len(wanted),
    )


def mean_figures(figures: Sequence[Figures]) -> Figures:
    """The means over at least one question."""
    rows = [asdict(each) for each in figures]
    return Figures(**{field.name: sum(row[field.name] for row in rows) / len(rows) for field in fields(Figures)})


class Junk(StrEnum):
    """Why nobody would miss a fact that was learned from a conversation."""

    SMALL_TALK = "small talk or a question"
    REPEATED = "said before"
    OF_AGENT = "said by the agent alone"
    UNSAID = "never said"


def judge_fact(fact: str, earlier: Sequence[str], persons: Set[str], agents: Set[str]) -> Junk | None:
    """Why a fact is junk, by the words of the person and of the agent in its conversation; None if it seems useful."""
    words = frozenset(lexemes(fact))
    if len(words) < FEWEST_WORDS or is_question(fact):
        return Junk.SMALL_TALK
    if any(says_same(fact, other) for other in earlier):
        return Junk.REPEATED
    if len(words & persons) >= HEARD * len(words):
        return None
    return Junk.OF_AGENT if len(words & (persons | agents)) >= HEARD * len(words) else Junk.UNSAID


FEWEST_WORDS, HEARD = 2, 0.5
"""Of a fact: the fewest words, and the share of them that somebody must have said."""
