from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from gateway.domain.ids import SessionId, TaskId
from gateway.domain.work.tasks import Status
from gateway.store.work.trees import NodeRow
from gateway.web.screens.tasks import Bar, bars

START = datetime(2026, 11, 26, 12, tzinfo=UTC)


def node(name: str, begin: int, end: int, status: Status = Status.COMPLETED) -> NodeRow:
    shown = (TaskId(uuid4()), None, 0, name, "main", status, None, None, 0.0, 0, None, [])
    at = (START + timedelta(seconds=begin), START + timedelta(seconds=end))
    return NodeRow(*shown, *at, None, SessionId(uuid4()), None, None, None)


def test_a_tree_that_is_over_fills_its_span() -> None:
    drawn = bars([node("all", 0, 200), node("part", 50, 100, Status.FAILED)], START + timedelta(days=1))
    assert drawn == [
        Bar("all", Status.COMPLETED, 0.0, 100.0, "3 min 20 s"),
        Bar("part", Status.FAILED, 25.0, 25.0, "50.0 s"),
    ]


def test_a_live_one_reaches_to_the_end_of_a_span_that_grows_in_steps() -> None:
    nodes = [node("all", 0, 0, Status.RUNNING), node("part", 10, 20)]
    drawn = bars(nodes, START + timedelta(seconds=100))
    assert (drawn[0].start, drawn[0].width, drawn[0].lasted) == (0, 100, "")
    assert bars(nodes, START + timedelta(seconds=100.1)) == drawn
    assert bars(nodes, START + timedelta(seconds=130)) != drawn


def test_a_clock_that_is_behind_draws_no_bar_outside() -> None:
    [drawn] = bars([node("all", 0, 0, Status.PENDING)], START - timedelta(seconds=5))
    assert (drawn.start, drawn.width) == (0, 100)
    late = replace(node("late", 500, 500, Status.PENDING))
    assert bars([node("all", 0, 10), late], START + timedelta(seconds=20))[1].start <= 99
