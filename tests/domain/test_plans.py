from uuid import UUID

import pytest

from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.domain.work.plans import FREE_CALLS, STEP_CALLS, TRIVIAL_CALLS, Plan, Step, lacking, rendered


def plan(*steps: str, ordinal: int = 2, trivial: str | None = None, title: str = "", task: int = 1) -> Plan:
    return Plan(TaskId(UUID(int=task)), title, tuple(map(Step.parse, steps)), trivial, Label.OWNER, ordinal)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("read it", Step("read it")),
        ("- [ ] read\n it ", Step("read it")),
        ("[x] read it", Step("read it", done=True)),
        ("- [X] read it", Step("read it", done=True)),
        ("a <!-- CORE:LOCK --> b", Step("a <!- CORE:LOCK --> b")),
    ],
)
def test_a_step_is_one_line_and_sets_no_markers(line: str, step: Step) -> None:
    assert Step.parse(line) == step


def test_rewriting_keeps_what_is_done_and_drops_what_is_left_out() -> None:
    made = plan("one", "two", "three").checked([1, 2])
    assert made.steps == (Step("one", done=True), Step("two", done=True), Step("three"))
    assert made.rewritten([Step("two"), Step("four")]).steps == (Step("two", done=True), Step("four"))


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_step_that_is_not_there_cannot_be_checked_off(number: int) -> None:
    with pytest.raises(IndexError, match="2 steps"):
        plan("one", "two").checked([1, number])


def test_a_run_needs_a_plan_after_its_first_calls() -> None:
    assert [lacking(None, n) is None for n in range(FREE_CALLS + 1)] == [True] * FREE_CALLS + [False]
    assert lacking(plan("one", ordinal=2), 3) is None


def test_each_step_updates_the_plan() -> None:
    made = plan("one", ordinal=7)
    assert [n for n in range(8, 20) if lacking(made, n) is None] == list(range(8, 8 + STEP_CALLS))
    assert "done" in str(lacking(made, 8 + STEP_CALLS))


def test_a_trivial_run_stays_short() -> None:
    trivial = plan(trivial="two look-ups")
    assert lacking(trivial, TRIVIAL_CALLS - 1) is None
    assert "steps" in str(lacking(trivial, TRIVIAL_CALLS))
    assert trivial.rewritten([Step("one")]).trivial is None


def test_the_file_has_a_section_for_each_plan() -> None:
    text = rendered([plan("one", "[x] two", title="Report"), plan(trivial="short"), plan("three", task=2 << 96)])
    assert text.endswith("\n## Report (00000000)\n\n- [ ] one\n- [x] two\n\n## Run (00000002)\n\n- [ ] three\n")
    assert rendered([plan(trivial="short")]) == rendered([]) == ""
