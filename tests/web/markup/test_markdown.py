import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from gateway.web.markup.markdown import (
    _LEXERS,
    CAP,
    CODE_CLASSES,
    LONG,
    LONGEST_LINE,
    Markdown,
    boundary,
    highlighted,
    rendered_end,
)

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<iframe src='javascript:alert(1)'>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox)",
    "[x](file:///etc/passwd)",
    "![x](javascript:alert(1))",
    "![x](https://tracker.example/p.png)",
    "![x][1]\n\n[1]: https://tracker.example/p.png",
    '[x](https://a.example "onmouseover=alert(1)")',
    '[x](https://a.example/"onmouseover="alert(1))',
    "<https://a.example/\"onclick='alert(1)'>",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "`<script>alert(1)</script>`",
    "| <b onclick=alert(1)> |\n|---|\n| <script>1</script> |",
    "https://a.example/<script>alert(1)</script>",
    'https://a.example/"onclick=alert(1)',
    "<style>*{background:url(https://tracker.example)}</style>",
    "<form action=https://evil.example><button>x</button></form>",
    "<math><mtext></p><style><img src=x onerror=alert(1)>",
    "\x00<script\x00>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "$\\text{<script>alert(1)</script>}$",
    "$$\\text{</mtext></math><img/src=x/onerror=alert(1)>}$$",
    "\\(\\href{javascript:alert(1)}{x}\\)",
    "$\\style{background:url(https://tracker.example)}{x}\\class{evil}{y}$",
    "$\\mathbb{<style>}\\operatorname{<svg/onload=alert(1)>}$",
    "$<math><annotation-xml encoding=text/html><img src=x onerror=alert(1)></annotation-xml>$",
    "```html\n<img src=x onerror=alert(1)>\n```",
    "```xml\n</code></pre><script>alert(1)</script>\n```",
    "- [x] <img src=x onerror=alert(1)>",
    '```chart\n{"type": "pie", "labels": ["<script>alert(1)</script>"], "series": {"<img src=x onerror=1>": [1]}}\n```',
    "```csv\n<script>,b\n<img src=x onerror=alert(1)>,2\n```",
    "<details onclick=alert(1)><summary><script>1</script></summary>x</details>",
    "x[^1]\n\n[^1]: <script>alert(1)</script>",
]
ALLOWED = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span", "h1", "h2"),
    *("h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "button", "div"),
    *("details", "summary", "sup", "svg", "circle", "title"),
    *("math", "mrow", "mi", "mo", "mn", "mtext", "mstyle", "mspace", "msup", "msub", "mfrac"),
}


class Elements(HTMLParser):
    """What a browser would make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements_of(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(html)
    return parser.found


def elements(text: str) -> list[tuple[str, dict[str, str | None]]]:
    return elements_of(str(Markdown().html(text)))


def assert_harmless(text: str) -> None:
    for tag, attributes in elements(text):
        assert tag in ALLOWED
        assert not [name for name in attributes if name.startswith("on") or name in {"style", "src", "id"}]
        if (href := attributes.get("href")) is not None:
            assert re.match(r"(https?|mailto):|[^:]*$", href.strip(), re.IGNORECASE), href


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_runs_or_loads_survives(attack: str):
    assert_harmless(attack)


@given(st.lists(st.sampled_from([*ATTACKS, "\n", "\n\n", "- ", "> ", "`", "*", "[", "](", ")", "<", " "]), max_size=8))
def test_nothing_that_runs_survives_in_combination(pieces: list[str]):
    assert_harmless("".join(pieces))


@given(st.text(max_size=300))
def test_no_text_breaks_the_renderer(text: str):
    assert_harmless(text)


def test_links_open_elsewhere_and_tell_nothing():
    [(_, link)] = [found for found in elements("see https://a.example/b_c_d, please") if found[0] == "a"]
    assert link == {"href": "https://a.example/b_c_d", "target": "_blank", "rel": "noopener noreferrer nofollow"}


def test_a_link_inside_a_link_stays_one_link():
    assert [tag for tag, _ in elements("[https://a.example](https://b.example)")].count("a") == 1


def test_a_picture_becomes_a_link():
    assert 'href="https://a.example/p.png"' in Markdown().html("![a pixel](https://a.example/p.png)")
    assert "<img" not in Markdown().html("![a pixel](https://a.example/p.png)")


def test_code_says_its_language_and_can_be_copied():
    html = Markdown().html("```python title\nprint('<')\n```\n\n    indented")
    assert "<span>python</span>" in html
    assert html.count("data-copy") == 2
    assert """<span class="f">print</span>(<span class="s">'&lt;'</span>)""" in html


def test_columns_keep_their_alignment():
    html = Markdown().html("| a | b | c |\n|:-:|--:|---|\n| 1 | 2 | 3 |")
    assert '<th class="center">a</th>' in html
    assert '<td class="right">2</td>' in html
    assert "<td>3</td>" in html


def test_code_is_coloured_once_it_is_complete():
    code = "def f():\n    return 1  # one"
    assert '<span class="k">def</span>' in Markdown().html(f"```python\n{code}\n```")
    assert "<span class=" not in Markdown().html(f"```python\n{code}")
    assert "<span class=" not in Markdown().html(f"```python\n{code}\n")


def test_code_with_long_lines_or_of_an_unknown_language_stays_as_it_is():
    assert "<span class=" not in Markdown().html(f"```python\nx = '{'y' * LONGEST_LINE}'\n```")
    assert "<span class=" not in Markdown().html("```nonsense\ndef f(): pass\n```")


@pytest.mark.parametrize("language", sorted(_LEXERS))
def test_every_language_has_its_lexer_and_no_character_is_lost(language: str):
    code = "\n\n# a 'b' <c> \"d\" 1\n\n\n\n\n\n  if (x) { return y; }\t\n"
    html = highlighted(code, language)
    assert re.sub("<[^>]+>", "", html) == str(escape(code))
    assert {name for _, found in elements_of(html) for name in [found["class"]]} <= CODE_CLASSES


@given(st.text(max_size=300))
def test_no_code_breaks_a_lexer(code: str):
    for language in ("python", "bash", "yaml", "javascript", "sql"):
        assert re.sub("<[^>]+>", "", highlighted(code, language)) == str(escape(code))


def test_tasks_have_boxes():
    html = Markdown().html("- [ ] open\n- [x] **done**\n- [y] none\n\n[x] not here")
    assert html.count('<li class="task">') == 2
    assert "☐ open" in html
    assert "☑ <strong>done</strong>" in html
    assert "[y] none" in html
    assert "[x] not here" in html


@pytest.mark.parametrize(
    "text",
    ["$x^2$", "so $x^2$.", "\\(x^2\\)", "$$x^2$$", "\\[x^2\\]", "$$\nx^2\n$$", "\\[\nx^2\n\\]", "- $$\n  x^2\n  $$"],
)
def test_formulas_become_mathml(text: str):
    html = Markdown().html(text)
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in html
    assert ('display="block"' in html) == ("$$" in text or "[" in text)


@pytest.mark.parametrize(
    "text",
    ["It costs $5 or $10.", "US$5 and US$6", "$HOME/bin:$PATH", "`$x^2$`", "a $ b $ c", "\\$x^2$", "$", "$$", "$$ $$"],
)
def test_money_and_variables_are_no_formulas(text: str):
    assert "<math" not in Markdown().html(text)


@pytest.mark.parametrize(
    "source", ["\\frac", "\\left(x", "{" * 900, "\\def\\a{\\a\\a}\\a", "x" * 3000, "\\newcommand\\a{b}\\a"]
)
def test_a_formula_that_cannot_be_read_is_shown_as_it_was_written(source: str):
    html = Markdown().html(f"$$\n{source}\n$$")
    assert "<math" not in html
    assert str(escape(source)) in html


def test_lines_of_a_derivation_stand_below_each_other():
    html = Markdown().html("$$\n\\begin{aligned}a&=b\\\\c&=d\\end{aligned}\n$$")
    assert html.count("<mtr>") == 2
    assert '<mtd class="right"><mi>a</mi></mtd>' in html


def test_a_wide_table_can_be_scrolled_by_keyboard():
    html = Markdown().html("| a |\n|---|\n| 1 |")
    assert '<div class="table" role="group" aria-label="Table" tabindex="0"><table>' in html.replace("\n", "")


def test_what_is_beyond_the_cap_is_shown_as_it_is():
    html = Markdown().html("*a*" + "x" * CAP + "*b*")
    assert html.startswith("<p><em>a</em>")
    assert html.endswith("*b*</pre>")


@pytest.mark.parametrize(
    "text",
    [
        "[" * CAP,
        "*a " * (CAP // 3),
        "![a](" * (CAP // 5),
        "> " * (CAP // 2),
        "- a\n" * (CAP // 4),
        "`" * CAP,
        "$x_" * (CAP // 3),
        "\\(" * (CAP // 2),
        "$$a\n" * (CAP // 4),
    ],
)
def test_pathological_texts_are_rendered_all_the_same(text: str):
    assert Markdown().html(text)


HOSTILE = [
    *(
        "![",
        "[",
        "[[[[](",
        "*a* ",
        "**",
        "*a**b*",
        "_",
        "~~a",
        "<a@b.c>",
        "<http://a>",
        "`a``b",
        "[a](b)",
        "![a](",
        "&amp;",
    ),
    *(
        "> ",
        "- ",
        "> - ",
        "1. ",
        "- a\n",
        ">- a\n",
        "> a\nb\n",
        "a|b\n-|-\n",
        "# a\n",
        "a\n===\n",
        "[a]: b\n",
        "```py\nx=1\n```\n",
    ),
    *(
        "$a$ ",
        "$x^2$ ",
        "$$a$$\n\n",
        "\\(a\\) ",
        "\\[\n",
        "http://a.b ",
        "*[",
        '*~~```\n>```js\n\\"\n   |-|- ',
        "a\n",
        "a  \n",
    ),
]
FILLED = f"{'|a' * 1_000}\n{'|-' * 1_000}\n"
LAZY = f"{'> ' * 19}a\n"


def calls_of(work: Callable[[], object]) -> int:
    """How many functions it calls: the same number each time, unlike its seconds."""
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("start", ["", FILLED, LAZY])
@pytest.mark.parametrize("unit", HOSTILE)
def test_no_text_costs_more_than_a_bounded_number_of_steps(unit: str, start: str):
    """Of each the most that is still laid out, and of the whole."""
    text = (start + unit * CAP)[:CAP]
    end = rendered_end(text)
    line = len(start) + 2_000
    for part in (text, text[: end or line]):
        assert calls_of(lambda part=part: Markdown().html(part)) < 600_000


def test_what_has_too_much_markup_is_shown_as_it_is_with_a_line_that_says_so():
    html = Markdown().html("*a*\n\n" + "![" * 9_000)
    assert html.startswith("<p><em>a</em></p>\n<p>The rest is shown as it was written")
    assert html.count("![") == 9_000


@pytest.mark.parametrize(
    "name", ["docs/security.md", "docs/approvals.md", "docs/api.md", "gateway/web/markup/markdown.py"]
)
def test_what_people_write_is_laid_out_whole(name: str):
    text = Path(name).read_text()
    text = (f"```python\n{text}\n```\n" if name.endswith(".py") else text) * 2
    assert rendered_end(text[:40_000]) == min(len(text), 40_000)


@pytest.mark.parametrize("line", ["\x0c", "\u2028", "\u3000"])
def test_only_what_ends_a_table_in_markdown_ends_its_cost(line: str):
    rows = FILLED + "|b|\n" * 5 + line + "\n"
    assert rendered_end(rows + "|b|\n" * 2_000) < len(rows) + 100


def test_only_so_many_formulas_and_so_much_code_are_set():
    assert 500 < Markdown().html("$a$ " * 2_000).count("<math") < 800
    html = Markdown().html("```python\n" + "def f(): pass\n" * 500 + "```\n" + "```python\nprint(1)\n```\n" * 100)
    assert html.count('<figure class="code">') == 101
    assert html.count("<span class=") < 2_500


async def test_long_texts_are_rendered_beforehand_and_remembered():
    markdown = Markdown()
    text = "word " * LONG
    await markdown.prepare([text, text, "short"])
    assert markdown.html(text) is markdown.html(text)


def test_memory_is_bounded():
    markdown = Markdown()
    for n in range(500):
        markdown.html(f"text {n}")
    assert len(markdown._done) == 400
    markdown.forget()
    assert len(markdown._done) == 0


async def test_memory_is_bounded_by_size_too():
    markdown = Markdown()
    for n in range(100):
        await markdown.prepare([f"{n} " + "x" * 200_000])
    kept = sum(len(text) + len(html) for text, html in markdown._done.values())
    assert 4 * 2**20 < kept <= 8 * 2**20
    assert kept == markdown._done.currsize
    enormous = "x" * (9 * 2**20)
    assert markdown.html(enormous) is markdown.html(enormous)


BLOCKS = [
    "A paragraph\nof two lines.",
    "# Title",
    "- a\n- b",
    "- a\n\n  still a\n\n- b",
    "1. one\n2. two",
    "> quoted\n> on",
    "```py\nx = 1\n\ny = 2\n```",
    "~~~\n```\n\n```\n~~~",
    "````\n```\n\n````",
    "| a |\n|---|\n| 1 |",
    "---",
    "`a` *b*",
    "    indented\n\n    code",
    "text\n\n    not code of a list",
    "$$\na^2\n= b\n$$",
    "so $a$ and \\(b\\)",
    "- [x] a\n- [ ] b",
]


@given(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6), st.data())
def test_blocks_rendered_one_by_one_make_up_the_whole(blocks: list[str], data: st.DataObject):
    """However the text arrives: what is cut off is finished, and the rest does not depend on it."""
    text, markdown = "\n\n".join(blocks), Markdown()
    done, pieces, at = 0, [], 0
    while at < len(text):
        at = data.draw(st.integers(at + 1, len(text)))
        cut = boundary(text[:at], done)
        assert done <= cut <= at
        pieces.append(str(markdown.html(text[done:cut])))
        done = cut
    pieces.append(str(markdown.html(text[done:])))
    assert "".join(pieces) == str(markdown.html(text))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("one\n\ntwo", 5),
        ("one\n\n", 0),
        ("one\ntwo", 0),
        ("```\na\n\nb\n\nc", 0),
        ("```\na\n```\n\nb", 11),
        ("- a\n\n- b", 0),
        ("1. a\n\n2", 0),
        ("- a\n\n  b\n\nc", 10),
        ("```a`b\n\nc", 8),
        ("~~~\n```\n\nx\n~~~\n\ny", 16),
    ],
)
def test_a_block_is_finished_when_another_begins(text: str, cut: int):
    assert boundary(text, 0) == cut
