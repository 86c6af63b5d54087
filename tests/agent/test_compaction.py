import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent.compaction import Cut, cut_of, longest_summary, own_turn, tokens_of, turn_after
from gateway.agent.context import to_messages
from gateway.agent.fit import LEFT_OUT, fit, message_tokens
from gateway.agent.summary import read, without_model, written
from gateway.agent.summary_prompt import prompt_for
from gateway.domain.conversation.model import AssistantMessage, SystemMessage, ToolMessage
from gateway.domain.text.tokens import estimate
from tests.agent.rows import NOW, Spoken


def covered(spoken: Spoken, keep: int = 0) -> list[str]:
    what = cut_of(spoken.rows, NOW, keep)
    return [] if what is None else [row.text for row in what.covered]


def words(tokens: int) -> str:
    return "word " * tokens


class TestCut:
    def test_the_open_messages_and_the_latest_answer_stay(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("c").answer("d").ask("e", open=True).ask("f", open=True)
        assert covered(spoken) == ["a", "b", "c"]

    def test_whole_rounds_stay_as_far_as_they_fit(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("c").ask("c2").call("r").answer("d").ask("e", open=True)
        assert covered(spoken, keep=80) == ["a", "b"]
        assert covered(spoken, keep=1000) == []
        assert covered(spoken, keep=30) == ["a", "b", "c", "c2", "{}", "r"]

    def test_with_nothing_before_the_open_messages_there_is_nothing_to_cut(self) -> None:
        assert covered(Spoken().ask("a", open=True)) == []
        assert covered(Spoken().notice("hello").ask("a", open=True)) == []
        assert covered(Spoken().answer("b").ask("a", open=True)) == []

    def test_what_the_running_turn_has_stored_stays(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("c").answer("d").ask("e", open=True)
        spoken.mutter("let me see", NOW).call(words(500), None, task=NOW).ask("and this", open=True)
        assert covered(spoken) == ["a", "b", "c"]

    def test_an_earlier_turn_of_the_same_task_may_go(self) -> None:
        spoken = Spoken().ask("a").call("r", task=NOW).answer("b", NOW).ask("c").answer("d", NOW).ask("e", open=True)
        spoken.call("s", task=NOW)
        assert covered(spoken) == ["a", "{}", "r", "b", "c"]
        assert [row.text for row in own_turn(spoken.rows, NOW)] == ["{}", "s"]

    def test_an_unanswered_message_is_never_covered_wherever_it_stands(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("forgotten", open=True).ask("c").answer("d").ask("e", open=True)
        assert covered(spoken) == ["a"]

    def test_what_a_given_up_run_left_behind_the_latest_answer_goes_with_it(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("c", stopped=True).call(words(500), None).ask("d", open=True)
        assert covered(spoken)[:3] == ["a", "b", "c"]
        assert len(covered(spoken)) == 6

    def test_a_question_that_was_only_given_up_keeps_the_answer_before_it(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("c", stopped=True).notice("Stopped.").ask("d", open=True)
        assert covered(spoken) == ["a"]

    def test_a_call_is_not_separated_from_a_result_that_came_late(self) -> None:
        spoken = Spoken().ask("a").call(None).answer("b").ask("c", open=True).result(0, "late")
        assert covered(spoken) == ["a"]

    def test_the_summary_before_is_carried_on(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("c").answer("d").ask("e").answer("f").summarise("S", 2)
        spoken.ask("g", open=True)
        what = cut_of(spoken.rows, NOW, 0)
        assert what is not None
        assert what.previous is spoken.rows[0]
        assert [row.text for row in what.covered] == ["c", "d", "e"]
        assert (what.covered[0].seq, what.last) == (3, 5)

    def test_a_second_one_finds_nothing_to_do(self) -> None:
        spoken = Spoken().ask("a").answer("b").ask("c").answer("d").summarise("S", 3).ask("e", open=True)
        assert cut_of(spoken.rows, NOW, 0) is None

    def test_a_summary_of_the_turn_belongs_to_the_turn(self) -> None:
        spoken = Spoken().ask("a").answer("b", NOW).ask("c").answer("d", NOW).ask("e", open=True)
        spoken = spoken.summarise("S", 3, NOW)
        assert turn_after(spoken.rows, NOW) == 4
        assert [row.text for row in own_turn(spoken.rows, NOW)] == ["S"]


class TestSizes:
    def test_what_the_model_is_not_shown_does_not_count(self) -> None:
        said = tokens_of(Spoken().ask("a b c").rows)
        assert tokens_of(Spoken().ask("a b c").notice(words(1000)).rows) == said
        assert tokens_of(Spoken().answer(words(100_000)).rows) < 21_000

    def test_of_a_text_that_became_a_file_only_the_beginning_counts(self) -> None:
        assert tokens_of(Spoken().ask(words(15_000)).rows) > 15_000
        assert tokens_of(Spoken().ask(words(25_000)).rows) < 1_000

    @pytest.mark.parametrize(("at", "limit"), [(64_000, 2_000), (4_000, 1_000), (50, 200)])
    def test_a_summary_is_small_beside_what_it_stands_for(self, at: int, limit: int) -> None:
        assert longest_summary(at) == limit


TEXT = st.one_of(
    st.text(max_size=12), st.builds(lambda unit, n: unit * n, st.text(min_size=1, max_size=6), st.integers(0, 1500))
)
Step = Callable[[Spoken], object]
CALLS = st.lists(TEXT, min_size=1, max_size=3)
PAST: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(lambda t: lambda s: s.ask(t), TEXT),
        st.builds(lambda t: lambda s: s.ask(t, stopped=True), TEXT),
        st.builds(lambda t: lambda s: s.answer(t), TEXT),
        st.builds(lambda t: lambda s: s.answer(t, NOW), TEXT),
        st.builds(lambda t: lambda s: s.mutter(t), TEXT),
        st.builds(lambda t: lambda s: s.notice(t, NOW), TEXT),
        st.builds(lambda results: lambda s: s.call(*results, path="notes/tea.md"), CALLS),
    ),
    max_size=14,
)
NEWEST: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(lambda t: lambda s: s.ask(t, open=True), TEXT),
        st.builds(lambda results: lambda s: s.call(*results, task=NOW), CALLS),
        st.builds(lambda result: lambda s: s.call(result, None, task=NOW), TEXT),
    ),
    max_size=4,
)
REPLIES = [
    "",
    "gibberish",
    "## Goal\nTea.\n## Decisions\nGreen.\n## Files\nnone\n## Worth remembering\n- Ada likes tea.",
]


def summary_of(what: Cut, reply: str, at: int) -> str:
    limit = longest_summary(at)
    return written(read(reply) or without_model(what, limit), limit)


@settings(max_examples=150)
@given(PAST, TEXT, NEWEST, st.integers(250, 3000), st.sampled_from(REPLIES), st.integers(0, 2000))
def test_whatever_was_said_the_next_prompt_fits_and_nothing_open_is_lost(
    past: list[Step], question: str, newest: list[Step], budget: int, reply: str, at: int
) -> None:
    spoken = Spoken()
    for step in [*past, lambda s: s.ask(question, open=True), *newest]:
        step(spoken)
    for _ in range(3):
        what = cut_of(spoken.rows, NOW, at // 4)
        if what is None:
            break
        assert_prompt_fits(what, budget, at)
        assert_nothing_of_the_turn_is_covered(spoken, what)
        spoken = spoken.summarise(summary_of(what, reply, at), what.last, NOW)
    assert estimate(spoken.rows[0].text) <= longest_summary(at) or spoken.rows[0].kind != "summary"
    check_next_prompt(spoken, budget)


def assert_prompt_fits(what: Cut, budget: int, at: int) -> None:
    prompt = prompt_for(what, budget, longest_summary(at))
    assert sum(message_tokens(message, estimate) for message in prompt.messages) <= budget


def assert_nothing_of_the_turn_is_covered(spoken: Spoken, what: Cut) -> None:
    assert not any(row.open for row in what.covered)
    assert not {row.id for row in own_turn(spoken.rows, NOW)} & {row.id for row in what.covered}
    kept = spoken.rows[len(what.covered) + (what.previous is not None) :]
    assert [*what.covered, *kept] == [row for row in spoken.rows if row.kind != "summary"]
    results = {row.ordinal for row in kept if row.kind == "tool_result"}
    assert results <= {row.ordinal for row in kept if row.kind == "tool_intent"}


def check_next_prompt(spoken: Spoken, budget: int) -> None:
    entries = [row.entry for row in spoken.rows]
    whole = (SystemMessage("Be kind."), *to_messages(entries))
    pinned = int(spoken.rows[0].kind == "summary")
    prompt = fit(whole, budget, estimate, pinned=pinned)
    assert sum(message_tokens(message, estimate) for message in prompt) <= budget
    asked_for = [call.id for message in prompt if isinstance(message, AssistantMessage) for call in message.calls]
    assert [message.call_id for message in prompt if isinstance(message, ToolMessage)] == asked_for
    if prompt == whole:
        texts = "\n".join(message.text for message in prompt)
        places = [texts.find(f"UTC] {row.text}") for row in spoken.rows if row.open]
        assert -1 not in places
    elif len(prompt) < len(whole):
        assert any(message.text.startswith(LEFT_OUT) for message in prompt)


def test_the_record_is_cut_evenly_rather_than_at_its_end() -> None:
    spoken = Spoken()
    for number in range(60):
        spoken.ask(f"question {number} {words(200)}").call(json.dumps(words(2000))).answer(f"reply {number}")
    what = cut_of(spoken.ask("now", open=True).rows, NOW, 0)
    assert what is not None
    [_, record] = prompt_for(what, 12_000, 2_000).messages
    assert all(f"question {number} " in record.text for number in range(60))
    assert all(f"reply {number}\n" in record.text for number in range(59))
