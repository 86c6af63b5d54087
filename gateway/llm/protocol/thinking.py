"""Thinking that a model writes into its text, taken out of the stream; what stands in code stays."""

import re
from dataclasses import dataclass, field

from gateway.domain.text.texts import GrowingText

_ANYWHERE = {"◁think▷": "◁/think▷"} | {f"<{tag}>": f"</{tag}>" for tag in ("think", "seed:think", "mm:think")}
_NAMED = r"<(\|?)(\w*(?:think|thought|reason|reflection|scratchpad|monologue|思考|推理)\w*)(\|?)>"
"""Marks by other names; what ends them has a slash before the name."""
_HARMONY = {"<|channel|>analysis": "<|end|>", "<|channel|>final": "<|message|>"}
_TOKENS = {"[think]": "[/think]", "<|start_thinking|>": "<|end_thinking|>", "<|channel>thought": "<channel|>"}
_OTHERS = {"<|begin_of_thought|>": "<|end_of_thought|>", "<unused94>thought": "<unused95>", "<|think|>": "<|end|>"}
_EMPTY = (
    r"<\|(?:(?:im_)?start|begin)\|>assistant|<\|channel\|>commentary<\|message\|>|<\|(?:begin_of_\w+|start_response)\|>"
)
"""Marks of an answer that begin no thinking."""
_CLOSING = {**_ANYWHERE, **_TOKENS, **_OTHERS, **_HARMONY}
_MIDWAY = {*_ANYWHERE, *_ANYWHERE.values()}
"""Answers have other marks for other reasons, too, so those count only where an answer begins."""
_MARK = re.compile("|".join((*map(re.escape, (*_CLOSING, *_ANYWHERE.values())), _NAMED, _EMPTY)), re.IGNORECASE)
FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})", re.MULTILINE)
_HINTS = frozenset("<[◁`~")
_END = re.compile(r"(?:(?:</?s>|<eos>|\[eos\]|<end_of_turn>|<turn\|>|<[|｜][a-z_▁]{3,20}[|｜]>)\s*)+", re.IGNORECASE)
"""Marks that end the turn; behind an answer they aren't a part of it."""
_OPEN_END = re.compile(r"[<[◁][^<>\s]{0,24}>?\w{0,12}\s*(?:<[^<>\s]{0,24}>?\s*){0,2}\Z")
"""The end of a text that may be the beginning of a mark, or of the end of the turn."""
_LINE_START = 12
"""Characters of a line that are kept: its beginning, for a fence, and its last one."""


@dataclass(slots=True)
class ThinkingFilter:
    """Passes an answer on without its thinking; a mark may be cut between two pieces."""

    thinks_first: bool = False
    """Whether the model is known to begin by thinking without saying so; nothing is passed on before its end."""
    dropped: bool = False
    """Whether all text so far turned out to be thinking, by a mark that ends what none began."""
    hidden: str = ""
    """The thinking taken out since the caller last emptied it."""
    _until: str = ""
    """The mark that ends the thinking."""
    _held: str = ""
    """Text that may be the beginning of a mark."""
    _line: str = ""
    _fenced: bool = False
    _begun: bool = False
    _waiting: GrowingText = field(default_factory=GrowingText)

    def add(self, piece: str) -> str:
        """The visible part of a piece, and of what was held back before it."""
        self.dropped = False
        if self.thinks_first:
            return self._past_the_first_thinking(piece)
        if not (self._until or self._held or self._fenced or _HINTS & set(piece)):
            return self._shown(piece)
        text, self._held = self._held + piece, ""
        shown = ""
        while (found := self._thinking_in(text)) is not None:
            before, text = found
            shown = "" if self.dropped else shown + self._shown(before)
        if self._until:
            self.hidden += text[: 1 - len(self._until)]
            self._held = text[1 - len(self._until) :]
            return shown
        open_end = _OPEN_END.search(text)
        visible, self._held = (text[: open_end.start()], open_end[0]) if open_end else (text, "")
        return shown + self._shown(visible)

    def end(self) -> str:
        """The visible rest at the end of the answer."""
        if self.thinks_first:
            return str(self._waiting)
        return "" if self._until or (self._begun and _END.fullmatch(self._held)) else self._held

    def _thinking_in(self, text: str) -> tuple[str, str] | None:
        """The text before and behind the next mark; None if there is no further one."""
        if self._until:
            at, mark = text.lower().find(self._until), self._until
            if at < 0:
                return None
            self._until, self.hidden = "", self.hidden + text[:at]
            return "", text[at + len(mark) :]
        if (match := self._next_mark(text)) is None:
            return None
        mark = match[0].lower()
        self._until = f"<{match[1]}/{match[2]}{match[3]}>".lower() if match[2] else _CLOSING.get(mark, "")
        if mark in _ANYWHERE.values() and (self._begun or text[: match.start()].strip()):
            self.dropped, self._begun, self._line = True, False, ""
        return text[: match.start()], text[match.end() :]

    def _next_mark(self, text: str) -> re.Match[str] | None:
        """The next mark outside of code."""
        for match in _MARK.finditer(text):
            before = text[: match.start()]
            begins = not self._begun and not before.strip()
            fenced = self._fenced ^ (len(FENCE.findall(self._line + before)) % 2 == 1)
            in_code = fenced or (self._line + before).endswith("`")
            if not in_code and (begins or match[0].lower() in _MIDWAY):
                return match
        return None

    def _past_the_first_thinking(self, piece: str) -> str:
        text, closing = self._held + piece, "</think>"
        at = text.lower().find(closing)
        if at < 0:
            self._waiting.add(piece)
            self._held = text[1 - len(closing) :]
            return ""
        whole = str(self._waiting) + piece
        self.thinks_first, self._held, self.hidden = False, "", whole[: whole.lower().find(closing)]
        return self.add(text[at + len(closing) :])

    def _shown(self, text: str) -> str:
        self._begun = self._begun or bool(text.strip())
        *whole, line = (self._line + text).split("\n")
        self._line = line if len(line) <= _LINE_START else line[: _LINE_START - 1] + line[-1]
        self._fenced ^= sum(FENCE.match(each) is not None for each in whole) % 2 == 1
        return text
