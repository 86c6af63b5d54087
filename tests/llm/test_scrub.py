from gateway.llm.errors import MAX_ERROR_CHARS, scrub


def test_known_secrets_and_what_looks_like_a_key_are_taken_out() -> None:
    assert scrub("key hunter2 and sk-proj-abcdefghijkl refused", ["hunter2"]) == "key *** and *** refused"


def test_a_placeholder_for_a_key_is_no_secret() -> None:
    assert scrub("thinking failed", ["k", "in", "x"]) == "thinking failed"


def test_a_text_becomes_one_line_of_bearable_length() -> None:
    assert scrub("a\n  b\tc", []) == "a b c"
    assert len(scrub("x" * 3000, [])) == MAX_ERROR_CHARS
