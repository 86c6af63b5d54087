import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gateway.domain.text.splitting import split, utf16_len, utf16_tail

PROSE = st.text(alphabet="ab .!?\n\té🙂👩\u200d🇩🇪\u0301。", max_size=400)
WORDS = st.text(alphabet="abc xyz.\n", max_size=80)
CODE = st.text(alphabet="abc {}\n  ", max_size=300)


@st.composite
def markdown(draw: st.DrawFn) -> str:
    blocks = draw(st.lists(st.tuples(st.sampled_from(("", "```", "~~~", "````py")), WORDS, CODE), max_size=8))
    return "\n\n".join(
        f"{marker}\n{code}\n{marker.removesuffix('py')}" if marker else words for marker, words, code in blocks
    )


def visible(text: str) -> str:
    return "".join(text.split())


def code_of(text: str) -> str:
    return visible("".join(token.content for token in MarkdownIt().parse(text) if token.type == "fence"))


@given(PROSE, st.integers(16, 80))
def test_every_part_fits_and_only_white_space_is_lost(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(0 < utf16_len(part) <= limit for part in parts)
    assert visible("".join(parts)) == visible(text)


@given(markdown(), st.integers(40, 200))
def test_code_stays_code_in_every_part(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(utf16_len(part) <= limit for part in parts)
    assert "".join(code_of(part) for part in parts) == code_of(text)


@given(st.text(max_size=60), st.integers(1, 40))
def test_a_tail_fits_and_ends_the_text(text: str, limit: int) -> None:
    tail = utf16_tail(text, limit)
    assert utf16_len(tail) <= limit
    assert text.endswith(tail)
    assert len(text) - len(tail) == 0 or utf16_len(tail) >= limit - 1


def test_lengths_are_counted_as_messengers_count_them() -> None:
    assert utf16_len("abc") == 3
    assert utf16_len("é🙂") == 3


def test_a_short_text_is_one_part() -> None:
    assert split("  indented\n\nand more\n\n", 100) == ("  indented\n\nand more",)


@pytest.mark.parametrize("text", ["", " \n\t\n", " " * 100])
def test_white_space_alone_is_no_part(text: str) -> None:
    assert split(text, 16) == ()


def test_a_limit_too_small_to_work_with_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        split("text", 15)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("The first part.\n\nSecond one. It is", ("The first part.", "Second one. It is")),
        ("A line of text\nand another line", ("A line of text", "and another line")),
        ("One sentence. Another sentence", ("One sentence.", "Another sentence")),
        ("several words without an end", ("several words without an", "end")),
        ("abcdefghijklmnopqrstuvwxyz", ("abcdefghijklmnopqrstuvwx", "yz")),
        ("So it is said.\n\n  - an indented item", ("So it is said.", "  - an indented item")),
    ],
)
def test_the_cut_is_at_the_best_border(text: str, parts: tuple[str, ...]) -> None:
    assert split(text, 24) == parts


def test_a_border_in_the_first_half_is_better_than_none() -> None:
    assert split("one two " + "x" * 22, 24) == ("one two", "x" * 22)


def test_a_block_that_fits_a_part_is_moved_there_whole() -> None:
    block = "```python\nprint(1)\nprint(2)\n```"
    assert split(f"Look at this:\n\n{block}\n\nDone.", 40) == ("Look at this:", f"{block}\n\nDone.")


def test_a_block_that_must_be_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(6))
    parts = split(f"```py\n{code}\n```\nThat is all.", 60)
    assert parts == (
        "```py\nline_0 = 0\nline_1 = 1\nline_2 = 2\nline_3 = 3\n```",
        "```py\nline_4 = 4\nline_5 = 5\n```\nThat is all.",
    )


def test_a_block_that_is_never_closed_is_cut_too() -> None:
    parts = split("~~~\n" + "word\n" * 20, 40)
    assert all(part.startswith("~~~\n") for part in parts)
    assert all(part.endswith("\n~~~") for part in parts[:-1])
    assert sum(part.count("word") for part in parts) == 20


def test_an_opening_line_too_long_to_repeat_is_treated_as_text() -> None:
    text = "```" + "x" * 100 + "\ncode\n```"
    assert visible("".join(split(text, 40))) == visible(text)


def test_a_block_that_would_begin_at_the_very_end_of_a_part_begins_the_next() -> None:
    code = "word\n" * 20
    parts = split(f"{'x' * 32}\n```\n{code}```", 40)
    assert parts[0] == "x" * 32
    assert all(part.startswith("```\nword\n") and part.endswith("word\n```") for part in parts[1:])


def test_a_closing_line_that_does_not_fit_is_written_shorter() -> None:
    code = "x" * 31
    assert split(f"```\n{code}\n{'`' * 10}\nafter", 40) == (f"```\n{code}\n```", "after")


def test_a_fence_in_a_fence_and_inline_code_open_nothing() -> None:
    block = "~~~\n```\n~~~"
    assert split(f"``` `a` ``` is inline.\n\n{block}\n\n{'word ' * 6}", 32) == (
        "``` `a` ``` is inline.",
        f"{block}\n\nword word word word",
        "word word",
    )


# --- tables ---

HEAD = "| name | size |\n|:-----|-----:|"


def rows_of(part: str) -> list[str]:
    """What the first column says, where a table is read as one."""
    tokens = MarkdownIt().enable("table").parse(part)
    cells = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "td_open"]
    return cells[::2]


def test_a_table_that_must_be_cut_begins_again_with_its_head() -> None:
    rows = [f"| file {number} | {number} |" for number in range(9)]
    parts = split(f"{HEAD}\n" + "\n".join(rows) + "\n\nThat is all.", 100)
    assert all(part.startswith(f"{HEAD}\n| file ") for part in parts)
    assert [row for part in parts for row in rows_of(part)] == [f"file {number}" for number in range(9)]
    assert parts[-1].endswith("\n\nThat is all.")


def test_a_table_that_fits_a_part_is_moved_there_whole() -> None:
    table = f"{HEAD}\n| a | 1 |\n| b | 2 |"
    assert split(f"These are the files I found:\n{table}\n\nDone.", 70) == (
        "These are the files I found:",
        f"{table}\n\nDone.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "```\n" + HEAD + "\n| code | 1 |" * 9 + "\n```",
        "a | b\n---\n" + "c | d\n" * 20,
        "| only | a head |\n|---|---|\n\n" + "words | " * 20,
        f"| {'long ' * 9}|\n|---|\n" + "| x |\n" * 20,
        "|---|\n" + "| x |\n" * 30,
    ],
    ids=["code", "no table", "no rows", "a head too long to repeat", "no head"],
)
def test_what_is_no_table_gets_no_head(text: str) -> None:
    parts = split(text, 80)
    assert len(parts) > 1
    assert visible("".join(part.replace("```\n", "").replace("\n```", "") for part in parts)) == visible(
        text.replace("```\n", "").replace("\n```", "")
    )


@given(st.lists(st.text(alphabet="ab \\`*", min_size=1, max_size=30), min_size=1, max_size=30), st.integers(96, 200))
def test_every_part_of_a_table_is_one(cells: list[str], limit: int) -> None:
    text = f"{HEAD}\n" + "\n".join(f"|{number} {cell}|x|" for number, cell in enumerate(cells))
    parts = split(text, limit)
    assert all(utf16_len(part) <= limit for part in parts)
    assert all(part.startswith(HEAD) for part in parts)
    assert "".join(visible(part.removeprefix(HEAD)) for part in parts) == visible(text.removeprefix(HEAD))


# --- marks ---


LOOKS = {"heading_open", "strong_open", "em_open", "s_open", "link_open", "code_inline", "fence", "table_open"}


def looks(part: str) -> int:
    """How many pieces of it have a look of their own."""
    tokens = MarkdownIt().enable(["table", "strikethrough"]).parse(part)
    return sum(each.type in LOOKS for token in tokens for each in (token, *(token.children or ())))


@pytest.mark.parametrize(
    "piece",
    [
        "**bold** and then: ",
        "some `code` in a line, ",
        "- a [link](https://x.example), *and* so on\n",
        "***both*** at once. ",
        "# A **bold** title\n\n~~gone~~ `x`\n\n",
        "```py\nx * y\n```\n\nthen\n\n",
        f"{HEAD}\n| a | b |\n\n- **name**: `value`, <https://x.example>\n\n",
    ],
)
def test_no_part_has_more_marks_than_its_messenger_shows(piece: str) -> None:
    text = (piece * 60)[:4000]
    parts = split(text, 4096, most_marks=30)
    assert max(map(looks, parts)) <= 30
    assert len(parts) <= looks(text) / 30 + 2
    assert visible("".join(parts)) == visible(text)


def test_what_only_looks_like_marks_counts_for_nothing() -> None:
    text = "".join(
        ("2 * 3 * 4 snake_case_name\n" * 20, "\n* item\n" * 20, f"\n{HEAD}\n" + "| **a** | `b` |\n" * 20)
    ) + ("\n```\n" + "*args, **kw = `x`\n" * 20 + "```")
    assert split(text, 4096, most_marks=30) == (text,)


def test_text_after_a_block_is_cut_behind_the_block() -> None:
    parts = split("```\ncode\n```\n" + "x" * 30, 32)
    assert parts == ("```\ncode\n```", "x" * 30)


@pytest.mark.parametrize("grapheme", ["👩\u200d💻", "👍🏽", "🇩🇪", "e\u0301"])
def test_a_visible_character_is_never_torn_apart(grapheme: str) -> None:
    for part in split(grapheme * 40, 33):
        assert visible(part.replace(grapheme, "")) == ""


def test_a_character_longer_than_a_part_is_cut_all_the_same() -> None:
    text = "e" + "\u0301" * 100
    assert "".join(split(text, 16)) == text
    assert unicodedata.combining(text[-1])


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "word " * 200_000,
        "🙂" * 250_000,
        "```\nx\n```\n" * 100_000,
        "```\n" + "x\n" * 500_000,
        "\n" * 10**6,
        "|-|\n" * 250_000,
        "|a|\n|-|\n" * 100_000 + "```|",
        "`" * 10**6,
        "*" * 10**6,
        "[" * 500_000 + "](" * 250_000,
    ],
    ids=[
        *("no border", "words", "emoji", "many blocks", "one block", "white space"),
        *("heads of tables", "tables in a fence", "backticks", "stars", "brackets"),
    ],
)
def test_a_megabyte_is_no_trouble(text: str) -> None:
    parts = split(text, 4096, most_marks=10**6)
    assert all(utf16_len(part) <= 4096 for part in parts)
    assert len(parts) <= 2 * utf16_len(text) // 4096 + 1
