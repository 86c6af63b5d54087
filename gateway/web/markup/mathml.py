"""Formulas: LaTeX to MathML, of which only known elements and attributes are kept; all text is escaped."""

import re
from html import unescape
from xml.etree.ElementTree import Element

from markupsafe import escape

LONGEST = 2_000
"""Characters of a formula."""

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
"""What is defined could grow without end."""
_ENVIRONMENT = re.compile(r"\\(begin|end)\{(?:aligned|gather\*?|gathered|eqnarray\*?)\}")
_EQUATION = re.compile(r"\\(begin|end)\{equation\*?\}")


def to_mathml(source: str, *, block: bool) -> str | None:
    """The formula as MathML; None if it cannot be read."""
    if len(source) > LONGEST or _DEFINES.search(source):
        return None
    from latex2mathml import converter, exceptions

    known = _EQUATION.sub("", _ENVIRONMENT.sub(r"\\\1{align*}", source))
    named = tuple(each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception))
    try:
        return _written(converter.convert_to_element(known, display="block" if block else "inline"))
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError, StopIteration):
        return None
    except named:
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
