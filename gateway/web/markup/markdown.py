"""Markdown to safe HTML: no raw HTML, no remote images, no scripts, bounded work; code in colours."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import nh3
from cachetools import FIFOCache
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape
from mdit_py_plugins.footnote import footnote_plugin

from gateway.domain.text import html, markdown
from gateway.web.markup import figures, formulas

LONGEST_CODE, LONGEST_LINE = 8_000, 250
"""Characters of a block and of a line of it; what is longer is shown as it is."""

_NAMES = """
bash c c++ console cpp css diff docker dockerfile go golang graphql http ini javascript js json jsx julia kotlin lua
make makefile nginx objective-c php py pycon python python3 rb ruby rs rust scala sh shell sql swift toml xml yaml yml
zsh
"""
_LEXERS = {name: name for name in _NAMES.split()} | {
    **dict.fromkeys(("c#", "cs", "csharp", "java", "ts", "tsx", "typescript"), "javascript"),
    "html": "xml",
    "kt": "kotlin",
    "patch": "diff",
}
"""Lexers that stay fast on any code, as tests showed; slow ones are replaced by a similar language."""

_BLANK = re.compile(r"((?:[ \t]*\n){4,})")
"""Lexers of many languages take ever longer over blank lines, so these are left out."""

_TOKEN_CLASSES = {
    "Token.Comment": "c",
    "Token.Generic.Deleted": "d",
    "Token.Generic.Heading": "f",
    "Token.Generic.Inserted": "i",
    "Token.Generic.Subheading": "f",
    "Token.Keyword": "k",
    "Token.Literal.Number": "n",
    "Token.Literal.String": "s",
    "Token.Name.Attribute": "f",
    "Token.Name.Builtin": "f",
    "Token.Name.Class": "f",
    "Token.Name.Decorator": "f",
    "Token.Name.Function": "f",
    "Token.Name.Tag": "k",
}
CODE_CLASSES = frozenset(_TOKEN_CLASSES.values())


def highlighted(code: str, language: str) -> str:
    """The code as HTML; without colours if the language is not supported or the code is too long."""
    if len(code) > LONGEST_CODE or max(map(len, code.split("\n"))) > LONGEST_LINE or language.lower() not in _LEXERS:
        return str(escape(code))
    pieces = [piece for part in _BLANK.split(code) for piece in _coloured_pieces(part, _LEXERS[language.lower()])]
    if "".join(text for _, text in pieces) != code:
        return str(escape(code))
    return "".join(
        f'<span class="{name}">{escape(text)}</span>' if name else str(escape(text)) for name, text in pieces
    )


def _coloured_pieces(code: str, language: str) -> Iterator[tuple[str, str]]:
    """Texts with their class; neighbours of one class are one piece."""
    if not code.strip():
        yield "", code
        return
    from pygments.lexers import get_lexer_by_name

    tokens = get_lexer_by_name(language, stripnl=False, ensurenl=False).get_tokens(code)
    for name, same in groupby(tokens, key=lambda token: _class(str(token[0]))):
        yield name, "".join(text for _, text in same)


def _class(kind: str) -> str:
    while kind and kind not in _TOKEN_CLASSES:
        kind = kind.rpartition(".")[0]
    return _TOKEN_CLASSES.get(kind, "")


CAP = 64 * 1024
"""Characters that are rendered; what follows is shown as plain text."""
MOST_WORK, LINE_WORK = 12_000, 4
"""Units of work on a text, each of 15 µs at most; and those of a line."""
_MARK = re.compile(r"[!-/:-@\[-`{-~]")
_LINES, _STRUCTURE = re.compile(r"(?<=\n)|(?<=\r)(?!\n)"), re.compile(r"[|>]|[-+*.)](?=\s)")
_HEAD = "-+*:|>.)0123456789 \t"
"""Characters that begin a line in quotes and lists, and all of the line below the head of a table."""
_CUT = Markup("<p>The rest is shown as it was written: it is too long, or has too much markup.</p>\n<pre>{}</pre>")
LONG = 8 * 1024
"""Characters from which on rendering leaves the event loop to others."""
_REMEMBERED = 400
_REMEMBERED_CHARS = 8 * 2**20

_URL = re.compile(r"https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]]")
_COSTLY = re.compile(r"```|~~~|\$|\\[(\[]")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_LIST_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])(\s|$)|\d{1,9}$")
"""Also a number alone: its dot may still be on its way."""

_ALIGNMENTS = {"left", "center", "right"}
_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
    *("figure", "figcaption", "button", "div", "details", "summary", "sup"),
    *figures.TAGS,
    *formulas.TAGS,
}
_CLASSES = {
    "th": _ALIGNMENTS,
    "td": _ALIGNMENTS,
    "figure": {"code", "pie", "plot"},
    "div": {"table"},
    "table": {"sorts"},
    "ul": {"legend"},
    "ol": {"footnotes-list"},
    "li": {"task"},
    "p": {"math"},
    "mtd": set(formulas.COLUMNS),
    "span": {*CODE_CLASSES, *figures.CLASSES},
    **{tag: set(figures.CLASSES) for tag in figures.TAGS},
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "ol": {"start"},
    "button": {"type", "data-copy", "data-sort"},
    **{tag: {*figures.ATTRIBUTES, *figures.PIE} for tag in figures.TAGS},
    "svg": {"viewBox", "role", "aria-label"},
    "div": {"tabindex", "role", "aria-label"},
    "pre": {"tabindex"},
    **{tag: set(formulas.ATTRIBUTES) for tag in formulas.TAGS},
}


class Markdown:
    """A renderer that remembers what it rendered last: many viewers look at the same text."""

    def __init__(self) -> None:
        self._parser = _parser()
        self._done: FIFOCache[str, tuple[str, Markup]] = FIFOCache(_REMEMBERED_CHARS, _weight)

    def html(self, text: str) -> Markup:
        """Safe HTML, whatever the text."""
        if text not in self._done:
            self._done[text] = text, self._rendered(text)
        return self._done[text][1]

    async def prepare(self, texts: Sequence[str]) -> None:
        """Render long texts, and those with code or formulas, in a thread, so that `html` finds them in the cache."""
        for text in texts:
            if (len(text) > LONG or _COSTLY.search(text)) and text not in self._done:
                self._done[text] = text, await asyncio.to_thread(self._rendered, text)

    def forget(self) -> None:
        """Empty the cache."""
        self._done.clear()

    def _rendered(self, text: str) -> Markup:
        end = rendered_end(text)
        head, rest = text[:end], text[end:]
        safe = nh3.clean(
            self._parser.render(head),
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            allowed_classes=_CLASSES,
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
            set_tag_attribute_values={"a": {"target": "_blank"}},
        )
        return Markup(safe) + (_CUT.format(rest) if rest else Markup())


def _weight(rendered: tuple[str, Markup]) -> int:
    """The characters of a text and its HTML; a share that bounds their number at least, and at most the whole cache."""
    return min(max(sum(map(len, rendered)), _REMEMBERED_CHARS // _REMEMBERED), _REMEMBERED_CHARS)


def rendered_end(text: str) -> int:
    """Where rendering ends: before the line with which the text would be too much work.

    Each mark is work, and a bracket thrice. So is each line, and more so by the columns of its table, by the quotes and
    lists it is in, and by the quotes that began before it, of which each looks at all lines up to a blank one.
    """
    end = work = width = quotes = 0
    quoted = False
    for line in _LINES.split(text[:CAP]):
        if not line.strip(" \t\r\n"):
            width = quotes = 0
        head = line.removesuffix(line.lstrip(_HEAD))
        width = max(width, len(_STRUCTURE.findall(head)))
        quotes += ">" in head and not quoted
        quoted = ">" in head
        work += LINE_WORK + width + quotes + len(_MARK.findall(line)) + 2 * line.count("[")
        if work > MOST_WORK:
            return end
        end += len(line)
    return end


def boundary(text: str, start: int) -> int:
    """The end of the last finished block after `start`: a blank line outside a fence, followed by a new block."""
    cut = position = start
    blank_at: int | None = None
    fence = ""
    for line in text[start:].splitlines(keepends=True):
        if not fence and blank_at is not None and _starts_a_block(line):
            cut = blank_at
        position += len(line)
        if line.strip():
            fence = _fence_after(fence, line)
            blank_at = None
        elif not fence:
            blank_at = position
    return cut


def _starts_a_block(line: str) -> bool:
    """Indented lines and list items may belong to what was before the blank line."""
    return bool(line.strip()) and not line[0].isspace() and not _LIST_ITEM.match(line)


def _fence_after(fence: str, line: str) -> str:
    if (match := _FENCE.match(line)) is None:
        return fence
    marks, info = match.groups()
    if not fence:
        return "" if marks[0] == "`" and "`" in info else marks
    return "" if marks[0] == fence[0] and len(marks) >= len(fence) and not info.strip() else fence


def _parser() -> MarkdownIt:
    parser = markdown.parser(folds=True).use(footnote_plugin, inline=False)
    formulas.add_rules(parser)
    parser.core.ruler.after("inline", "folds", _fold)
    parser.core.ruler.after("inline", "bare_links", _link_bare_urls)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("fence", _code)
    parser.add_render_rule("code_block", _code)
    parser.add_render_rule("table_open", lambda *_: f"{_TABLE}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    for cell in ("th_open", "td_open"):
        parser.add_render_rule(cell, _cell)
    parser.add_render_rule("footnote_anchor", lambda *_: "")  # no links: ids of several answers meet on one page
    parser.add_render_rule("footnote_ref", lambda _, tokens, index, *__: f"<sup>{tokens[index].meta['id'] + 1}</sup>")
    return parser


def _fold(state: StateCore) -> None:
    """The paragraphs that stand around a folded part become its ends, a bold one at its beginning its summary."""
    tokens, nothing = state.tokens, _text("")
    for at, token in enumerate(tokens):
        if token.type != "inline" or token.content not in {html.FOLD, html.UNFOLD}:
            continue
        token.children = []
        if token.content == html.UNFOLD:
            tokens[at - 1], tokens[at + 1] = nothing, Token("details_close", "details", -1)
            continue
        tokens[at - 1], tokens[at + 1] = Token("details_open", "details", 1), nothing
        if len(tokens) > at + 3 and tokens[at + 3].content.startswith("**"):
            tokens[at + 2], tokens[at + 4] = Token("summary_open", "summary", 1), Token("summary_close", "summary", -1)


def _image(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: EnvType) -> str:
    """A link: loading a picture would tell its server that, and when, the message was read."""
    source = str(tokens[index].attrGet("src") or "")
    title = "A picture on another site: it isn’t loaded here"
    return f'<a href="{escape(source)}" title="{title}">{escape(tokens[index].content or source)}</a>'


def _code(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    language = token.info.split()[0] if token.info.strip() else "text"
    figure = _FIGURES[language](token.content) if language in _FIGURES and _ended(token) else None
    if figure is not None:
        return figure
    caption = f'<figcaption><span>{escape(language)}</span><button type="button" data-copy>Copy</button></figcaption>'
    plain = not _ended(token) or not formulas.affordable(len(token.content), env)
    code = escape(token.content) if plain else highlighted(token.content, language)
    return f'<figure class="code">{caption}<pre tabindex="0"><code>{code}</code></pre></figure>\n'


_FIGURES = {"chart": figures.chart, "csv": figures.csv_table, "tsv": figures.csv_table}


def _ended(token: Token) -> bool:
    """Whether the block is complete; one that is still being written is drawn again and again."""
    lines = token.map[1] - token.map[0] if token.map else 0
    return token.content[-1:] in {"", "\n"} and lines == token.content.count("\n") + 2


_TABLE = '<div class="table" role="group" aria-label="Table" tabindex="0">'


def _cell(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: EnvType) -> str:
    alignment = str(tokens[index].attrGet("style") or "").removeprefix("text-align:")
    return f'<{tokens[index].tag} class="{alignment}">' if alignment else f"<{tokens[index].tag}>"


def _link_bare_urls(state: StateCore) -> None:
    for token in state.tokens:
        if token.children and any("://" in child.content for child in token.children):
            token.children = _linked(token.children)


def _linked(tokens: list[Token]) -> list[Token]:
    done: list[Token] = []
    inside = 0
    for token in tokens:
        inside += {"link_open": 1, "link_close": -1}.get(token.type, 0)
        done.extend([token] if inside or token.type != "text" else _pieces(token))
    return done


def _pieces(token: Token) -> list[Token]:
    done: list[Token] = []
    position = 0
    for match in _URL.finditer(token.content):
        done.append(_text(token.content[position : match.start()]))
        opening = Token("link_open", "a", 1, attrs={"href": match.group()})
        done += [opening, _text(match.group()), Token("link_close", "a", -1)]
        position = match.end()
    return [*done, _text(token.content[position:])]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
