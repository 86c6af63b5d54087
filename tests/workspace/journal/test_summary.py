from datetime import timedelta
from html import escape as html_escape

import pytest
from markdown_it import MarkdownIt

from gateway.workspace.journal.summary import LINE, IndexLine, render_index, render_line, summarise
from tests.workspace.journal.entries import AT


def line(summary: str = "hello", channel: str = "web") -> IndexLine:
    return IndexLine(AT, channel, summary)


class TestSummary:
    def test_it_says_what_was_asked_how_much_was_said_and_how_it_ended(self) -> None:
        said = ("Where is\nthe key?", "Under the mat.\n\nAnything else?", 4)
        assert summarise(*said) == "Where is the key? (4 messages)\n→ Under the mat. Anything else?"

    def test_long_words_are_cut(self) -> None:
        asked, answered = summarise("a" * 1000, "b" * 1000, 2).splitlines()
        assert asked == f"{'a' * (LINE - 1)}… (2 messages)"
        assert answered == f"→ {'b' * (LINE - 1)}…"

    def test_what_has_no_answer_is_one_line(self) -> None:
        assert summarise("hello?", "", 1) == "hello? (1 message)"

    def test_an_answer_nobody_asked_for_says_so(self) -> None:
        assert summarise("", "Good morning", 1) == "No question (1 message)\n→ Good morning"

    def test_a_conversation_of_nothing_but_commands_says_so(self) -> None:
        assert summarise("", "", 0) == "Nothing was said."


class TestIndex:
    def test_each_conversation_has_its_link_date_channel_and_summary(self) -> None:
        assert render_index([line(summary="one\n→ two\nthree")]).endswith(
            "\n- [2026-03-01 12:30](20260301123015.md) · web · one\n  → two\n"
        )

    def test_the_newest_comes_last_so_that_it_can_be_added(self) -> None:
        later = IndexLine(AT + timedelta(days=1), "", "later")
        first = line(summary="earlier")
        assert render_index([later, first]) == render_index([first]) + render_line(later)

    @pytest.mark.parametrize("marker", ["-", "+", "*", "1.", "2)", "#", ">"])
    def test_words_of_a_conversation_work_no_markup(self, marker: str) -> None:
        nasty = f"[click](http://evil) <b>x</b> `code` **bold** # title <!-- claw -->\n{marker} item"
        html = MarkdownIt("commonmark").render(render_index([line(summary=nasty, channel="<i>")]))
        assert html.count("<a ") == 1
        for tag in ("<b>", "<code>", "<strong>", "<i>", "<!--"):
            assert tag not in html
        assert html.count("<h1>") == 1
        assert html.count("<li>") == 1
        assert f"{html_escape(marker)} item" in html

    def test_an_empty_summary_says_so(self) -> None:
        assert "No summary." in render_index([line(summary="\n")])
