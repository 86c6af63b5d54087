import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent.conversation.fit import (
    IMAGE_TOKENS,
    LEFT_OUT,
    MAX_MESSAGE_TOKENS,
    MESSAGE_OVERHEAD,
    cut,
    even_out,
    fit,
    message_tokens,
)
from gateway.domain.conversation.model import (
    AssistantMessage,
    Image,
    PromptMessage,
    ProviderFields,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)


def by_length(text: str) -> int:
    return (len(text) + 3) // 4


def by_bytes(text: str) -> int:
    return len(text.encode())


def weight(messages: Sequence[PromptMessage], estimate: object = by_length) -> int:
    assert callable(estimate)
    return sum(message_tokens(message, estimate) for message in messages)


def words(tokens: int) -> str:
    return "wörd" * tokens


def asked(*ids: str, text: str = "", arguments: str = "{}") -> AssistantMessage:
    return AssistantMessage(text, tuple(ToolCall(id, "look", arguments) for id in ids))


SYSTEM = SystemMessage("Be kind.")


def test_what_fits_is_left_alone() -> None:
    messages = (SYSTEM, UserMessage("a"), AssistantMessage("b"), UserMessage("c"))
    assert fit(messages, 1000, by_length) == messages
    assert fit((), 1000, by_length) == ()


def test_the_oldest_go_first_and_one_line_says_so() -> None:
    old, newer, newest = UserMessage(words(100)), UserMessage(words(90)), UserMessage("c")
    messages = (SYSTEM, old, AssistantMessage("b"), newer, AssistantMessage("d"), newest)
    assert fit(messages, 200, by_length) == (
        SYSTEM,
        UserMessage(LEFT_OUT),
        AssistantMessage("b"),
        newer,
        AssistantMessage("d"),
        newest,
    )
    assert fit(messages, 140, by_length)[1] == UserMessage(f"{LEFT_OUT}\n\n{newer.text}")


def test_the_line_joins_the_first_user_message_that_is_left() -> None:
    messages = (UserMessage(words(150)), AssistantMessage(words(100)), UserMessage("c"))
    assert fit(messages, 200, by_length) == (
        UserMessage(LEFT_OUT),
        AssistantMessage(words(100)),
        UserMessage("c"),
    )
    assert fit((*messages[:1], AssistantMessage(words(250)), UserMessage("c")), 200, by_length) == (
        UserMessage(f"{LEFT_OUT}\n\nc"),
    )


def test_calls_and_their_results_go_together() -> None:
    messages = (
        UserMessage("a"),
        asked("1", "2"),
        ToolMessage("1", words(90)),
        ToolMessage("2", words(90)),
        AssistantMessage("b"),
        UserMessage("c"),
    )
    assert fit(messages, 200, by_length) == (UserMessage(LEFT_OUT), AssistantMessage("b"), UserMessage("c"))


def test_in_a_long_run_the_question_and_the_latest_results_stay() -> None:
    messages = [UserMessage("question")]
    rounds = [(asked(str(n)), ToolMessage(str(n), f"{n} {words(60)}")) for n in range(10)]
    fitted = fit([*messages, *(part for pair in rounds for part in pair)], 300, by_length)
    assert fitted[0] == UserMessage(f"{LEFT_OUT}\n\nquestion")
    assert fitted[-2:] == rounds[-1]
    assert len(fitted) == 7


def test_results_too_long_for_a_small_model_are_cut_not_dropped() -> None:
    messages = (SYSTEM, UserMessage("question"), asked("1", "2"), ToolMessage("1", words(5000)), ToolMessage("2", "b"))
    fitted = fit(messages, 400, by_length)
    assert [type(message) for message in fitted] == [
        SystemMessage,
        UserMessage,
        AssistantMessage,
        ToolMessage,
        ToolMessage,
    ]
    assert "characters are left out here" in fitted[3].text
    assert fitted[3].text.startswith("wörd")
    assert fitted[3].text.endswith("wörd")
    assert fitted[4] == ToolMessage("2", "b")
    assert weight(fitted) <= 400


def test_a_single_enormous_message_is_cut_even_where_there_is_room() -> None:
    huge = UserMessage("start " + words(MAX_MESSAGE_TOKENS) + " end")
    [fitted] = fit((huge,), 10**6, by_length)
    assert MAX_MESSAGE_TOKENS * 0.9 < weight([fitted]) <= MAX_MESSAGE_TOKENS
    assert fitted.text.startswith("start ")
    assert fitted.text.endswith(" end")


def test_enormous_arguments_stay_valid_json() -> None:
    call = asked("1", text="Writing.", arguments=json.dumps({"content": words(MAX_MESSAGE_TOKENS)}))
    fitted = fit((UserMessage("a"), call, ToolMessage("1", "{}")), 10**6, by_length)[1]
    assert isinstance(fitted, AssistantMessage)
    assert list(json.loads(fitted.calls[0].arguments)) == ["cut"]
    assert fitted.text == "Writing."


def test_arguments_that_grow_by_escaping_are_dropped_rather_than_broken() -> None:
    call = asked("1", arguments=json.dumps({"content": '"' * 8 * MAX_MESSAGE_TOKENS}))
    fitted = fit((UserMessage("a"), call, ToolMessage("1", "{}")), 10**6, by_length)[1]
    assert isinstance(fitted, AssistantMessage)
    json.loads(fitted.calls[0].arguments)


def test_a_system_text_longer_than_the_model_is_cut_to_half() -> None:
    fitted = fit((SystemMessage(words(5000)), UserMessage("hello")), 400, by_length)
    assert fitted[-1] == UserMessage("hello")
    assert "left out here" in fitted[0].text
    assert weight(fitted) <= 400


def test_calls_that_cannot_be_shrunk_give_way_to_the_question() -> None:
    many = [str(number) for number in range(100)]
    messages: list[PromptMessage] = [UserMessage("question"), asked(*many)]
    messages += [ToolMessage(id, "x") for id in many]
    assert fit(messages, 200, by_length) == (UserMessage(f"{LEFT_OUT}\n\nquestion"),)


def test_a_text_that_is_dense_at_its_ends_is_cut_further() -> None:
    text = "€" * 200 + "a" * 5000 + "€" * 200
    [fitted] = fit((UserMessage(text),), 300, by_bytes)
    assert fitted.text.startswith("€")
    assert fitted.text.endswith("€")
    assert weight([fitted], by_bytes) <= 300


def test_what_is_pinned_is_kept_and_cut_rather_than_dropped() -> None:
    messages = [UserMessage(f"summary {words(100)}"), *(UserMessage(words(90)) for _ in range(5)), UserMessage("c")]
    fitted = fit(messages, 250, by_length, pinned=1)
    assert fitted[0].text.startswith(f"{LEFT_OUT}\n\nsummary")
    assert len(fitted) == 3
    tight = fit([UserMessage(f"summary {words(900)}"), UserMessage(words(900))], 250, by_length, pinned=1)
    assert [("left out here" in message.text) for message in tight] == [True, True]
    assert weight(tight) <= 250


def test_the_longest_message_there_may_be_can_be_told() -> None:
    huge = UserMessage(words(2 * MAX_MESSAGE_TOKENS))
    assert fit((huge,), 10**6, by_length, longest=10**6) == (huge,)


def test_texts_are_cut_from_the_longest_on() -> None:
    texts = [words(10), words(500), words(300)]
    short, *long = even_out(texts, 210, by_length)
    assert short == texts[0]
    assert [90 < by_length(text) <= 100 for text in long] == [True, True]
    assert even_out(texts, 1000, by_length) == texts
    assert even_out([], 10, by_length) == []
    assert cut(words(500), 3, by_length) == ""


TEXT = st.one_of(
    st.text(max_size=8), st.builds(lambda unit, n: unit * n, st.text(min_size=1, max_size=3), st.integers(0, 3000))
)
ROUND = st.one_of(
    st.builds(lambda text: [UserMessage(text)], TEXT),
    st.builds(lambda text: [AssistantMessage(text)], TEXT),
    st.builds(
        lambda text, results: [
            AssistantMessage(
                text, tuple(ToolCall(str(n), "look", json.dumps([result])) for n, result in enumerate(results))
            ),
            *(ToolMessage(str(n), result) for n, result in enumerate(results)),
        ],
        TEXT,
        st.lists(TEXT, min_size=1, max_size=4),
    ),
)


@settings(max_examples=200)
@given(
    TEXT,
    st.lists(ROUND, max_size=8),
    TEXT,
    st.integers(200, 3000),
    st.sampled_from([by_length, by_bytes]),
    st.sampled_from([0, 1]),
)
def test_the_next_prompt_always_fits(
    system: str, rounds: list[list[PromptMessage]], newest: str, budget: int, estimate: object, pinned: int
) -> None:
    assert callable(estimate)
    messages = [SystemMessage(system), *(message for part in rounds for message in part), UserMessage(newest)]
    fitted = fit(messages, budget, estimate, pinned=pinned)
    assert weight(fitted, estimate) <= budget
    assert isinstance(fitted[-1], UserMessage)
    asked_for = [call.id for message in fitted if isinstance(message, AssistantMessage) for call in message.calls]
    assert [message.call_id for message in fitted if isinstance(message, ToolMessage)] == asked_for
    assert fit(messages, budget, estimate, pinned=pinned) == fitted


PICTURE = Image("image/jpeg", b"x")


def test_pictures_count() -> None:
    assert message_tokens(UserMessage("", (PICTURE, PICTURE)), by_length) == 2 * IMAGE_TOKENS + MESSAGE_OVERHEAD


def test_where_there_is_no_room_the_oldest_pictures_go_before_the_words() -> None:
    newest = Image("image/jpeg", b"newest")
    asked = UserMessage("what is it? " + words(400), (*[PICTURE] * 7, newest))
    [fitted] = fit((asked,), 3000, by_length)
    assert isinstance(fitted, UserMessage)
    assert (fitted.images, fitted.text) == ((newest,), asked.text)
    [smaller] = fit((asked,), 1000, by_length)
    assert smaller == UserMessage(asked.text)


def test_the_line_about_older_messages_leaves_the_pictures() -> None:
    messages = (UserMessage(words(5000)), AssistantMessage("b"), UserMessage("c", (PICTURE,)))
    assert fit(messages, 3000, by_length)[-1] == UserMessage("c", (PICTURE,))
    assert fit(
        (UserMessage(words(2500)), AssistantMessage(words(2500)), UserMessage("c", (PICTURE,))), 3000, by_length
    ) == (UserMessage(f"{LEFT_OUT}\n\nc", (PICTURE,)),)


def fields(tokens: int) -> ProviderFields:
    return ProviderFields("here", "x" * (3 * tokens))


def test_fields_of_a_provider_count_and_are_never_cut() -> None:
    long = AssistantMessage("I look.", (ToolCall("a", "look", "{}"),), fields(30_000))
    messages = (UserMessage("old"), AssistantMessage("Yes.", (), fields(500)), UserMessage("new"), long)
    assert fit(messages, 40_000, by_length) == messages
    assert fit(messages, 30_300, by_length)[-1] == long
    assert "Yes." not in str(fit(messages, 30_300, by_length))


def test_without_room_for_the_newest_fields_they_go_before_any_word() -> None:
    messages = (UserMessage("new " * 100), AssistantMessage("I look. " * 100, (), fields(2_000)))
    short = fit(messages, 1_000, by_length)
    assert [message.text for message in short] == [message.text for message in messages]
    assert short[-1] == AssistantMessage("I look. " * 100)
