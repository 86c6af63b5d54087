from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, SecretStr

from gateway.logs import SecretMask


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [hidden]"),
        ("/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1/getMe", "/bot[hidden]/getMe"),
        ("key sk-proj-abcdefghijkl1234 used", "key [hidden] used"),
        ("claw_abcdefghijklmnop", "[hidden]"),
        ("xoxb-123456789012-abcdef", "[hidden]"),
        ("postgres://me:hush@h/db", "postgres://me:[hidden]@h/db"),
        ("task-force sk-short 12:30", "task-force sk-short 12:30"),
        ("http://h:8787/path", "http://h:8787/path"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_unasked(text: str, shown: str) -> None:
    assert SecretMask().text(text) == shown


def test_the_secrets_of_settings_are_learnt_wherever_they_lie() -> None:
    class Inner(BaseModel):
        token: SecretStr

    class Settings(BaseModel):
        inner: Inner
        by_name: dict[str, SecretStr]
        plain: str

    mask = SecretMask()
    mask.learn(
        Settings(
            inner=Inner(token=SecretStr("one-secret")), by_name={"x": SecretStr("two-secret")}, plain="in the open"
        )
    )

    assert mask.text("one-secret two-secret in the open") == "[hidden] [hidden] in the open"


def test_the_longer_of_two_secrets_goes_first() -> None:
    mask = SecretMask()
    mask.add("secret")
    mask.add("secret-and-more")

    assert mask.text("a secret-and-more b") == "a [hidden] b"


def test_a_word_too_short_to_be_a_secret_is_left_alone() -> None:
    mask = SecretMask()
    mask.add("no")

    assert mask.text("not now") == "not now"


def test_values_json_knows_are_kept() -> None:
    assert SecretMask().value({"n": 1, "t": True, "x": None, "f": 0.5, "d": datetime(2026, 1, 1, tzinfo=UTC)}) == {
        "n": 1,
        "t": True,
        "x": None,
        "f": 0.5,
        "d": "2026-01-01T00:00:00+00:00",
    }
