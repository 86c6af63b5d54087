from uuid import UUID

import pytest

from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.domain.work.todo_lists import FREE_CALLS, STEP_CALLS, TRIVIAL_CALLS, TodoList, TodoStep, lacking, rendered


def todo(*steps: str, ordinal: int = 2, trivial: str | None = None, title: str = "", task: int = 1) -> TodoList:
    return TodoList(TaskId(UUID(int=task)), title, tuple(map(TodoStep.parse, steps)), trivial, Label.OWNER, ordinal)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("read it", TodoStep("read it")),
        ("- [ ] read\n it ", TodoStep("read it")),
        ("[x] read it", TodoStep("read it", done=True)),
        ("- [X] read it", TodoStep("read it", done=True)),
        ("a <!-- CORE:LOCK --> b", TodoStep("a <!- CORE:LOCK --> b")),
    ],
)
def test_a_step_is_one_line_and_sets_no_markers(line: str, step: TodoStep) -> None:
    assert TodoStep.parse(line) == step


def test_rewriting_keeps_what_is_done_and_drops_what_is_left_out() -> None:
    made = todo("one", "two", "three").checked([1, 2])
    assert made.steps == (TodoStep("one", done=True), TodoStep("two", done=True), TodoStep("three"))
    assert made.rewritten([TodoStep("two"), TodoStep("four")]).steps == (TodoStep("two", done=True), TodoStep("four"))


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_step_that_is_not_there_cannot_be_checked_off(number: int) -> None:
    with pytest.raises(IndexError, match="2 steps"):
        todo("one", "two").checked([1, number])


def test_a_run_needs_a_todo_list_after_its_first_calls() -> None:
    assert [lacking(None, n) is None for n in range(FREE_CALLS + 1)] == [True] * FREE_CALLS + [False]
    assert lacking(todo("one", ordinal=2), 3) is None


def test_each_step_updates_the_todo_list() -> None:
    made = todo("one", ordinal=7)
    assert [n for n in range(8, 20) if lacking(made, n) is None] == list(range(8, 8 + STEP_CALLS))
    assert "done" in str(lacking(made, 8 + STEP_CALLS))


def test_a_trivial_run_stays_short() -> None:
    trivial = todo(trivial="two look-ups")
    assert lacking(trivial, TRIVIAL_CALLS - 1) is None
    assert "steps" in str(lacking(trivial, TRIVIAL_CALLS))
    assert trivial.rewritten([TodoStep("one")]).trivial is None


def test_the_file_has_a_section_for_each_todo_list() -> None:
    text = rendered([todo("one", "[x] two", title="Report"), todo(trivial="short"), todo("three", task=2 << 96)])
    assert text.endswith("\n## Report (00000000)\n\n- [ ] one\n- [x] two\n\n## Run (00000002)\n\n- [ ] three\n")
    assert rendered([todo(trivial="short")]) == rendered([]) == ""
