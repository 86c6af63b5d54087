"""The Markdown of models as every channel reads it."""

import pytest

from gateway.domain.text.markdown import RIGHT_TO_LEFT_MARK, Renderer, directed, is_right_to_left


class Plain(Renderer):
    """Marks as they are named."""

    def marked(self, node: object, inner: str) -> str:
        return f"{{{inner}}}"

    def code(self, content: str) -> str:
        return f"<<{content.rstrip()}>>"

    def link(self, target: str, label: str) -> str:
        return f"{label} ({target})"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<details><summary>List</summary>\n\n- a\n- b\n\n</details>", "{List}\n\n• a\n• b"),
        ("H<sub>2</sub>O, x<sup>2</sup>, one<br>two, <kbd>Ctrl</kbd>", "H2O, x^2, one\ntwo, Ctrl"),
        ('<b>x</b> <I>y</I> <a href="https://e.org">z</a><!-- n -->', "{x} {y} z (https://e.org)"),
        ("<a href='javascript:x'>z</a>", "z"),
        ("| a |\n|---|\n| x<br>H<sub>2</sub> |", "<<a\n────\nx H2>>"),
        ("<p>Hello</p><ol><li>a</li><li>b</li></ol>", "Hello\n\n1. a\n2. b"),
        ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "<<a  b\n─  ─\n1  2>>"),
        ("`<br>` and\n```\n<p>x</p><br>\n```\n    <p>", "{<br>} and\n\n<<<p>x</p><br>>>\n\n<<<p>>>"),
        ("List<String> <T> x < y, a <b> and <details> alone", "List<String> <T> x < y, a <b> and <details> alone"),
        ("||hidden|| if a || b || c", "hidden if a || b || c"),
        ("- [x] done\n- [ ] open\n- plain", "☑ done\n☐ open\n• plain"),
    ],
)
def test_html_that_models_write_is_readable_and_code_keeps_it(text: str, shown: str) -> None:
    assert Plain().render(text) == shown


def test_the_direction_is_that_of_most_letters() -> None:
    assert is_right_to_left("Python هو لغة برمجة")
    assert not is_right_to_left("The word سلام means peace")
    assert not is_right_to_left("123 …")
    assert (
        directed("Python هو لغة برمجة\nسلام\nonly words")
        == f"{RIGHT_TO_LEFT_MARK}Python هو لغة برمجة\nسلام\nonly words"
    )
