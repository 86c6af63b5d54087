from datetime import UTC, datetime, timedelta
from uuid import uuid4

from gateway.domain.ids import PrincipalId, TaskId
from gateway.store.work.steps import StepRow
from gateway.web.trace import LONGEST, clipped, seconds, spans

START = datetime(2026, 11, 26, 12, tzinfo=UTC)


def step(kind: str, end: float, took_ms: int, **more: object) -> StepRow:
    values = dict.fromkeys(("tokens_in", "tokens_out", "tokens_cached", "tokens_thinking", "thinking_usd"), 0)
    values |= {"id": 1, "task_id": TaskId(uuid4()), "principal_id": PrincipalId(1), "kind": kind, "name": "x"}
    values |= {"cost_usd": 0.0, "failed": (), "message_id": None, "ok": None, **more}
    return StepRow(**values, latency_ms=took_ms, created_at=START + timedelta(seconds=end))


def test_bars_share_one_axis_and_offsets_count_from_the_start_of_the_task() -> None:
    model, tool = spans([step("model", 4, 2000, cost_usd=0.5, tokens_in=1200), step("tool", 12, 8000)], START)
    assert (model.start, model.width, model.offset) == (0, 20, "2.0 s")
    assert model.about == "2.0 s · $0.50 · 1.2k tokens in, 0 out"
    assert (tool.start, tool.width, tool.offset, tool.about) == (20, 80, "4.0 s", "8.0 s")


def test_a_step_without_length_is_seen_and_no_bar_leaves_the_axis() -> None:
    assert spans([], START) == []
    for drawn in spans([step("note", 0, 0), step("tool", 10, 10_000), step("note", 10, 0)], START):
        assert drawn.width >= 0.5
        assert 0 <= drawn.start + drawn.width <= 100


def test_times_and_long_texts_in_words() -> None:
    assert [seconds(each) for each in (0.38, 1.25, 184, 7500)] == ["380 ms", "1.2 s", "3 min 4 s", "2 h 5 min"]
    assert clipped("x" * (LONGEST + 1)).endswith("x … (longer)")
