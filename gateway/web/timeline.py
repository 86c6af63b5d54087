"""When each task of a tree began and ended, as bars beside each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.domain.work.tasks import Status
from gateway.store.engine.trees import NodeRow

STEP = 1.1
"""By how much the span grows at once while a tree goes on, so that its bars aren't drawn again every second."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`start` and `width` are percents of the tree's span; that of a live task reaches to its end."""

    name: str
    status: Status
    start: float
    width: float
    lasted: str


def bars(nodes: Sequence[NodeRow], now: datetime) -> list[Bar]:
    """One for each task, from when it was made to its end."""
    begin = min(node.created_at for node in nodes)
    ended = all(node.status.final for node in nodes)
    last = max(node.updated_at for node in nodes) if ended else now
    span = max((last - begin).total_seconds(), 0.001)
    if not ended:
        span = STEP ** math.ceil(math.log(span, STEP))
    return [_bar(node, begin, span) for node in nodes]


def duration(start: datetime, end: datetime) -> str:
    """In seconds, minutes or hours."""
    seconds = round((end - start).total_seconds())
    minutes, hours = seconds // 60, seconds // 3600
    return f"{seconds} s" if not minutes else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def _bar(node: NodeRow, begin: datetime, span: float) -> Bar:
    final = node.status.final
    start = 100 * (node.created_at - begin).total_seconds() / span
    end = 100 * (node.updated_at - begin).total_seconds() / span if final else 100
    lasted = duration(node.created_at, node.updated_at) if final else ""
    start = min(start, 99)
    return Bar(node.name, node.status, round(start, 1), round(max(end - start, 1), 1), lasted)
