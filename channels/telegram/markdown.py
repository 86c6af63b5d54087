"""Markdown → the few HTML tags Telegram knows; everything else is escaped."""

import re
from html import escape, unescape

from markdown_it.tree import SyntaxTreeNode

from gateway.domain.text.markdown import Renderer

_LINKS = re.compile(r"(https?|tg|mailto):", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]+")
_ANCHOR = re.compile(r"</?a\b[^>]*>")
_QUOTE = re.compile(r"</?blockquote>")
_TAG = re.compile(r"<[^>]*>")
_TAGS = {"heading": "b", "strong": "b", "em": "i", "s": "s", "code_inline": "code"}


def to_html(text: str) -> str:
    """Never raises, whatever a model wrote; tags are always balanced."""
    return Html().render(text)


def visible(html: str) -> str:
    """What a reader sees of our own HTML: the text whose length Telegram limits."""
    return unescape(_TAG.sub("", html))


class Html(Renderer):
    """Tags that mark; links and quotes do not nest."""

    def text(self, content: str) -> str:
        """Without anything that could be a tag."""
        return escape(content, quote=False)

    def marked(self, node: SyntaxTreeNode, inner: str) -> str:
        """Within the tag that looks most like it."""
        return f"<{_TAGS[node.type]}>{inner}</{_TAGS[node.type]}>"

    def show(self, node: SyntaxTreeNode) -> str:
        """Code with the name of its language, if it is one; all else as always."""
        if node.type != "fence" or not (language := _LANGUAGE.match(node.info.strip())):
            return super().show(node)
        shown = self.text(node.content.rstrip("\n"))
        return f'<pre><code class="language-{language.group()}">{shown}</code></pre>'

    def code(self, content: str) -> str:
        """Spaces and lines as they are."""
        return f"<pre>{self.text(content.rstrip(chr(10)))}</pre>"

    def quote(self, inner: str) -> str:
        """A quote in a quote is only its text."""
        return f"<blockquote>{_QUOTE.sub('', inner)}</blockquote>"

    def link(self, target: str, label: str) -> str:
        """A picture in a link is only its text."""
        label = _ANCHOR.sub("", label)
        return f'<a href="{escape(target)}">{label}</a>' if _LINKS.match(target) and label else label
