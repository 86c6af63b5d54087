import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.telegram.markdown import to_html, to_rich, visible
from channels.telegram.sdk import load_aiogram
from tests.fakes.telegram import Page

MARKS = r'* ** _ ` ``` ~~ [ ]( ) ![ <b> </i> & | |-| word https://e.org \ " 🙂'
GAPS = ["> ", "- ", "1. ", "# ", "\n", "\n\n", "    ", "\0"]
MARKUP = st.lists(st.sampled_from([*re.split(" ", MARKS), *GAPS]), max_size=60).map("".join)


@given(MARKUP | st.text(max_size=80))
def test_telegram_takes_whatever_comes_out(text: str) -> None:
    load_aiogram()
    from teremok.validation import validate_html

    html = to_html(text)
    validate_html(html)
    assert "<" not in visible(html) or "<" in text


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain & <simple>", "plain &amp; &lt;simple&gt;"),
        ("**bold** _it_ ~~gone~~ `x < y`", "<b>bold</b> <i>it</i> <s>gone</s> <code>x &lt; y</code>"),
        ("one\ntwo\n\nthree", "one\ntwo\n\nthree"),
        ("## A *title*", "<b>A <i>title</i></b>"),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1</code></pre>'),
        ('```"><b>\nx\n```', "<pre>x</pre>"),
        ("    indented", "<pre>indented</pre>"),
        ("- a\n- b\n  - c\n    - d\n- e", "• a\n• b\n    • c\n        • d\n• e"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("> a\n> > b", "<blockquote>a\n\nb</blockquote>"),
        ("---", "———"),
        ("[here](https://e.org/?a=1&b=2)", '<a href="https://e.org/?a=1&amp;b=2">here</a>'),
        ("[here](relative/path)", "here"),
        ("[here](file:///etc/passwd)", "[here](file:///etc/passwd)"),
        ("![a cat](https://e.org/cat.png)", '<a href="https://e.org/cat.png">a cat</a>'),
        ("![](https://e.org/cat.png)", '<a href="https://e.org/cat.png">image</a>'),
        ("[![a cat](https://e.org/cat.png)](https://e.org)", '<a href="https://e.org">a cat</a>'),
        ("| a | b |\n|---|---|\n| **1** | 日本 |\n| <x> | |", "<pre>a    b\n───  ────\n1    日本\n&lt;x&gt;</pre>"),
    ],
)
def test_markdown_becomes_what_telegram_can_show(text: str, html: str) -> None:
    assert to_html(text) == html


def test_marks_nested_beyond_reason_are_shown_as_they_are() -> None:
    text = "*" * 2000 + "<x>" + "*" * 2000
    assert visible(to_html(text)) == text


# --- rich messages ---


@pytest.mark.parametrize(
    ("text", "html"),
    [
        (
            "| a | b |\n|:--|--:|\n| **1** | x<y |",
            '<table bordered><tr><th align="left">a</th><th align="right">b</th></tr>'
            '<tr><td align="left"><b>1</b></td><td align="right">x&lt;y</td></tr></table>',
        ),
        ("$$E = mc^2$$", "<tg-math-block>E = mc^2</tg-math-block>"),
        ("\\[\na_1 < b_2\n\\]", "<tg-math-block>a_1 &lt; b_2</tg-math-block>"),
        ("```math\nx\n```", "<tg-math-block>x</tg-math-block>"),
        ("so \\(a_1*b*c\\)\nand $x^2$!", "<p>so <tg-math>a_1*b*c</tg-math><br>and <tg-math>x^2</tg-math>!</p>"),
        (
            "# T\n> q\n\n2. a\n   - b\n\n---\n```py\n1<2\n```\n$x$",
            '<h1>T</h1><blockquote><p>q</p></blockquote><ol start="2"><li>a<ul><li>b</li></ul></li></ol><hr/>'
            '<pre><code class="language-py">1&lt;2</code></pre><p><tg-math>x</tg-math></p>',
        ),
        (
            "|a|\n|-|\n|![x](https://e.org/?q=secret) <img src=y>|",
            "<table bordered><tr><th>a</th></tr><tr><td>"
            '<a href="https://e.org/?q=secret">x</a> &lt;img src=y&gt;</td></tr></table>',
        ),
    ],
)
def test_tables_and_formulas_become_a_page(text: str, html: str) -> None:
    assert to_rich(text) == html


@pytest.mark.parametrize(
    "text",
    [
        "plain **bold**",
        "# Title\n- a\n  - b",
        "from $5 to $10, or $5-$10",
        "a | b\nand `$x$`",
        "*" * 2000 + "$x$" + "*" * 2000,
        "\\$x\\$ \\\\(not\\\\)",
    ],
)
def test_what_html_can_show_needs_no_page(text: str) -> None:
    assert to_rich(text) is None


@given(MARKUP)
def test_a_page_is_always_well_formed(text: str) -> None:
    page = to_rich(f"{text}\n\n|a|\n|-|\n|{text}|\n\n$$x$$")
    if page is not None:
        Page().check(page)
        assert "<img" not in page
