"""How good a ranking is: figures of one question, and their means."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from math import log2


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one question, or the means of several; 0–1 each.

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


def measure(ranked: Sequence[str], evidence: Collection[str], session_of: dict[str, str]) -> Figures:
    """`ranked` and `evidence`, which is not empty, are ids of turns; each is of a session."""
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


def mean(figures: Sequence[Figures]) -> Figures:
    """Of at least one question."""
    rows = [asdict(each) for each in figures]
    return Figures(**{field.name: sum(row[field.name] for row in rows) / len(rows) for field in fields(Figures)})
