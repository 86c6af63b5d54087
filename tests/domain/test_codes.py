import pytest

from gateway.domain.people.credentials import CODE_ALPHABET, CODE_LENGTH, new_code, parse_code


def test_codes_are_eight_clear_characters_and_never_the_same() -> None:
    codes = {new_code() for _ in range(1000)}
    assert len(codes) == 1000
    assert {len(code) for code in codes} == {CODE_LENGTH}
    assert set("".join(codes)) == set(CODE_ALPHABET)
    assert not set(CODE_ALPHABET) & set("IO01")


def test_what_was_made_is_read_again() -> None:
    code = new_code()
    assert parse_code(code) == parse_code(f" {code[:4].lower()}-{code[4:]}\n") == code


@pytest.mark.parametrize("text", ["", "ABCDEFG", "ABCDEFGHJ", "ABCDEFG0", "ABCDEFGI", "ÄBCDEFGH", "A" * 10_000])
def test_anything_else_is_no_code(text: str) -> None:
    assert parse_code(text) is None
