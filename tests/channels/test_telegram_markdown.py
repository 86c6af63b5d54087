import re
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.telegram import preload
from channels.telegram.markdown import CAP, to_html, visible

MARKS = r'* ** _ ` ``` ~~ [ ]( ) ![ <b> </i> & | |-| word https://e.org \ " 🙂'
GAPS = ["> ", "- ", "1. ", "# ", "\n", "\n\n", "    ", "\0"]
MARKUP = st.lists(st.sampled_from([*re.split(" ", MARKS), *GAPS]), max_size=60).map("".join)


@given(MARKUP | st.text(max_size=80))
def test_telegram_takes_whatever_comes_out(text: str) -> None:
    preload()
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


@pytest.mark.parametrize("hostile", ["[", "![", "*a_b`", "> ", "- ", "<", "~~a", "[a](", "|-", "\\\n"])
def test_beyond_the_cap_nothing_is_read_as_markdown(hostile: str) -> None:
    head, rest = "word " * (CAP // 5 + 1), hostile * (2 * 2**20 // len(hostile))
    assert to_html(head[:CAP] + rest) == to_html(head[:CAP]) + escape(rest, quote=False)


def test_text_that_is_within_the_cap_is_markdown_to_its_end() -> None:
    assert to_html("w" * (CAP - 6) + " **b**").endswith("w <b>b</b>")
