import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.files import locked_parts, may_write

LOCK, UNLOCK = b"<!-- CORE:LOCK -->", b"<!-- /CORE:LOCK -->"
OPEN, SHUT = b"<!-- AI:OPEN -->", b"<!-- /AI:OPEN -->"
FILE = b"# A\n" + LOCK + b"\nrules\n" + UNLOCK + b"\n" + OPEN + b"\nold\n" + SHUT + b"\nend\n"


def test_a_file_without_markers_is_free() -> None:
    assert locked_parts(b"Never change what stands between CORE:LOCK markers.") == ()
    assert may_write(b"one", b"two")
    assert may_write(b"", b"new")


def test_only_the_text_between_open_markers_may_change() -> None:
    assert may_write(FILE, FILE.replace(b"old", b"new text\nof several lines"))
    assert may_write(FILE, FILE.replace(b"\nold\n", b""))
    for change in (b"rules", b"# A", b"end"):
        assert not may_write(FILE, FILE.replace(change, b"mine"))


@pytest.mark.parametrize(
    "after",
    [
        b"",
        FILE.replace(LOCK, b""),
        FILE.replace(b" -->", b"-->"),
        FILE.replace(b"CORE:LOCK", b"core:lock"),
        FILE.replace(b"\n", b"\r\n"),
        codecs.BOM_UTF8 + FILE,
        FILE + b"\n",
        FILE.replace(b"old", SHUT + b"mine" + OPEN),
        FILE.replace(b"old", SHUT + OPEN),
        FILE.replace(b"old", LOCK + b"owner, obey" + UNLOCK),
        FILE.replace(b"old", b"<!-- CORE:LOCK"),
        FILE.replace(b"old", b"<!-- /AI:OPEN"),
        FILE.replace(b"old", OPEN),
        FILE.replace(b"rules", OPEN + b"mine" + SHUT),
        FILE.replace(b"rules\n" + UNLOCK, b"rules\n"),
        FILE.replace(b"rules", UNLOCK + OPEN + b"mine" + SHUT + LOCK),
        FILE + FILE,
        FILE[: FILE.index(SHUT)],
        FILE.decode().encode("utf-16"),
    ],
)
def test_no_other_change_is_allowed(after: bytes) -> None:
    assert not may_write(FILE, after)


@pytest.mark.parametrize(
    "before",
    [
        LOCK + b"a" + LOCK + b"b" + UNLOCK + OPEN + b"free" + SHUT + UNLOCK,  # the outer one still holds
        LOCK + b"no end" + OPEN + b"free" + SHUT,
        b"<!-- CORE:LOCK of mine -->" + OPEN + b"free" + SHUT,
        OPEN + b"free",
        OPEN + b"free" + LOCK + b"x" + UNLOCK + SHUT,
        b"free" + SHUT,
        b"<!-- AI:OPEN free" + SHUT,
        b"\xff\xfe" + (LOCK + b"free" + UNLOCK).decode().encode("utf-16-le"),
    ],
)
def test_what_is_not_clearly_open_is_locked(before: bytes) -> None:
    assert not may_write(before, before.replace(b"free", b"mine").replace(b"f\0r\0e\0e", b"m\0i\0n\0e"))


@pytest.mark.parametrize(
    "marker", [b"<!--CORE:LOCK-->", b"<!-- core:lock -->", b"<!--\n CORE:LOCK\r\n-->", b"<!--\tAI:OPEN"]
)
def test_the_agent_sets_no_markers_however_they_are_written(marker: bytes) -> None:
    assert not may_write(b"notes", b"notes " + marker)
    assert not may_write(b"", marker)


def test_a_long_run_of_spaces_takes_no_time() -> None:
    assert locked_parts(b"<!--" + b" " * 1_000_000 + b"<!--" * 100_000) == ()


PIECES = st.sampled_from([LOCK, UNLOCK, OPEN, SHUT, b"<!-- CORE:LOCK", b"x", b"\n", b"<!--", b"-->"])
TEXTS = st.lists(PIECES, max_size=12).map(b"".join)


@given(TEXTS, TEXTS)
def test_an_allowed_change_keeps_every_locked_byte_in_order(before: bytes, after: bytes) -> None:
    if may_write(before, after):
        rest = after
        for part in locked_parts(before):
            assert part in rest
            rest = rest[rest.index(part) + len(part) :]
        assert rest == b"" or not locked_parts(before)


@given(TEXTS)
def test_every_byte_is_locked_or_open(text: bytes) -> None:
    parts = locked_parts(text)
    assert not parts or sum(map(len, parts)) <= len(text)
    assert may_write(text, text)
