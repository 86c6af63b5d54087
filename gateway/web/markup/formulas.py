"""Formulas: parser rules for dollars, \\(…\\) and \\[…\\], and LaTeX to safe MathML; also items of a list of tasks."""

import re
from collections.abc import Sequence
from html import unescape
from xml.etree.ElementTree import Element

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import escape

LONGEST_FORMULA = 2_000
"""Characters of a formula."""
MOST_COSTLY = 16_000
"""Characters of code in colours in one text; those of formulas count twice, and each formula as 20 more."""

_ELEMENTS = """
math menclose mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow mspace msqrt mstyle msub
msubsup msup mtable mtd mtext mtr munder munderover
"""
_SAFE = """
accent accentunder depth display displaystyle fence form height linethickness lspace mathvariant maxsize minsize
movablelimits notation rspace scriptlevel separator stretchy symmetric voffset width
"""
TAGS, ATTRIBUTES = frozenset(_ELEMENTS.split()), frozenset(_SAFE.split())
COLUMNS = frozenset({"left", "right"})
"""Classes of a cell."""

_VALUE = re.compile(r"[A-Za-z0-9.+ -]{1,40}")
_DEFINES = re.compile(r"\\(newcommand|renewcommand|providecommand|def|edef|gdef|xdef|let)\b")
"""Commands that define others, whose expansion could grow without end."""
_ENVIRONMENT = re.compile(r"\\(begin|end)\{(?:aligned|gather\*?|gathered|eqnarray\*?)\}")
_EQUATION = re.compile(r"\\(begin|end)\{equation\*?\}")


def to_mathml(source: str, *, block: bool) -> str | None:
    """The formula as MathML; None if it cannot be read."""
    if len(source) > LONGEST_FORMULA or _DEFINES.search(source):
        return None
    from latex2mathml import converter, exceptions

    known = _EQUATION.sub("", _ENVIRONMENT.sub(r"\\\1{align*}", source))
    try:
        return _written(converter.convert_to_element(known, display="block" if block else "inline"))
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError, StopIteration):
        return None
    except tuple(each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)):
        return None


def _written(element: Element) -> str:
    """Of an element that is not known, only what is in it."""
    inner = _text(element.text) + "".join(_written(child) + _text(child.tail) for child in element)
    if element.tag not in TAGS:
        return inner
    attributes = "".join(
        f' {name}="{value}"' for name, value in element.items() if name in ATTRIBUTES and _VALUE.fullmatch(value)
    )
    column = element.get("columnalign")
    side = f' class="{column}"' if element.tag == "mtd" and column in COLUMNS else ""
    return f"<{element.tag}{attributes}{side}>{inner}</{element.tag}>"


def _text(text: str | None) -> str:
    """The library writes references to characters; here they are characters."""
    return str(escape(unescape(text or "")))


_CLOSING = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_TASK = re.compile(r"\[([ xX])\](?=\s)")
_INTERRUPTS = ["paragraph", "reference", "blockquote", "list"]


def add_rules(parser: MarkdownIt) -> None:
    """Add the rules."""
    parser.inline.ruler.before("escape", "math", _math_inline)
    parser.block.ruler.before("fence", "math", _math_block, {"alt": _INTERRUPTS})
    parser.core.ruler.after("inline", "tasks", _tasks)
    parser.add_render_rule("math_inline", _formula)
    parser.add_render_rule("math_block", _formula)


def _math_inline(state: StateInline, silent: bool) -> bool:
    found = _display_at(state.src, state.pos) or _dollars_at(state.src, state.pos)
    if found is None or found[1] > state.posMax:
        return False
    source, end = found
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content, token.markup = source, state.src[state.pos : state.pos + 2]
    state.pos = end
    return True


def _display_at(text: str, at: int) -> tuple[str, int] | None:
    """A formula between marks of two characters that begins here, and where it ends."""
    if (closing := _CLOSING.get(text[at : at + 2])) is None:
        return None
    end = text.find(closing, at + 2, at + LONGEST_FORMULA)
    return (text[at + 2 : end], end + 2) if end > at + 2 and text[at + 2 : end].strip() else None


def _dollars_at(text: str, at: int) -> tuple[str, int] | None:
    """A formula between single dollars, and where it ends; amounts of money and shell variables are no formulas."""
    if text[at] != "$" or (at and text[at - 1].isalnum()) or text[at + 1 : at + 2] in {"", " ", "\n", "$"}:
        return None
    end = text.find("$", at + 1, at + LONGEST_FORMULA)
    while end > 0 and text[end - 1] == "\\":
        end = text.find("$", end + 1, at + LONGEST_FORMULA)
    if end < 0 or text[end - 1].isspace() or text[end + 1 : end + 2].isalnum():
        return None
    return text[at + 1 : end], end + 1


def _math_block(state: StateBlock, start: int, last: int, silent: bool) -> bool:
    first = _line(state, start)
    closing = _CLOSING.get(first[:2])
    if closing is None or first[:2] == "\\(" or state.is_code_block(start):
        return False
    found = _until(state, start, last, first[:2], closing)
    if found is None or not found[0].strip():
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.block, token.content, token.markup, token.map = True, found[0], first[:2], [start, found[1]]
        state.line = found[1]
    return True


def _until(state: StateBlock, start: int, last: int, opening: str, closing: str) -> tuple[str, int] | None:
    """The formula that begins in this line, and the line behind it; None if its end is not the end of a line."""
    source = ""
    for number in range(start, last):
        line = _line(state, number)
        rest = line[2:] if number == start else line
        if not line or state.sCount[number] < state.blkIndent or len(source) > LONGEST_FORMULA:
            return None
        inner, mark, behind = rest.partition(closing)
        if mark:
            return None if behind else (source + inner, number + 1)
        if number > start and rest.startswith(opening):
            return None
        source += rest + "\n"
    return None


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()


def affordable(cost: int, env: EnvType) -> bool:
    """Whether the text being rendered may have this much more set in colours or as formulas; counts it."""
    env["costly"] = env.get("costly", 0) + cost
    return bool(env["costly"] <= MOST_COSTLY)


def _formula(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    affords = affordable(20 + 2 * len(token.content), env)
    shown = to_mathml(token.content, block=token.markup in {"$$", "\\["}) if affords else None
    if shown is None:
        shown = f"<code>{escape(token.content.strip())}</code>"
    return f'<p class="math">{shown}</p>\n' if token.block else shown


def _tasks(state: StateCore) -> None:
    """`[x]` at the beginning of an item becomes a ticked box."""
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if (item.type, paragraph.type, inline.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        text = inline.children[0] if inline.children else None
        if text is not None and text.type == "text" and (box := _TASK.match(text.content)):
            item.attrSet("class", "task")
            text.content = ("☐" if box[1] == " " else "☑") + text.content[box.end() :]
