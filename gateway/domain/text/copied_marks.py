"""Marks of the gateway that a model copies into its answer, taken out as the answer grows; code keeps them."""

import re
from dataclasses import dataclass

SILENT = ("NO_REPLY", "HEARTBEAT_OK")
"""Answers by which other gateways mean none."""
MAX_MARK = 600
_STAMP = re.compile(
    r"[ \t]*(?:\[(?:\w{2,12}\.?,? )?(?:\d{4}-\d\d-\d\d(?:,? \w{2,12})?|\d\d? \w{3} \d{4})[ T]\d\d:\d\d "
    r"(?:[A-Z]{2,5}|UTC[+-]\d[\d:]*|[A-Z]\w+/[\w/+-]+)\b"
    r"[^\]\n]{0,100}\]|\[\[?reply_to(?:_current|:[^\]\n]{0,64})\]?\])[ \t]?"
)
_LINE = re.compile(
    r"[ \t]*\[(?:Forwarded from |Added by the platform|file [^\n]{1,200}: |Recalled from "
    r"|Summary of the conversation before|The conversation starts with|\d+ more files were left out)[^\n]*\]?[ \t]*"
)
_RECALLED = re.compile(r"[ \t]*\[Recalled ")
_OPEN = re.compile(r"[ \t]*(?:\[[^\n]*)?")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(slots=True)
class CopiedMarks:
    """Passes a growing answer on without copied marks; with `silence`, nothing of an answer that means none.

    Only a line that may still become a mark waits for more.
    """

    silence: bool = False
    _line: str = ""
    _shown: int = 0
    _fence: str = ""
    _recalled: bool = False
    _begun: bool = False

    def add(self, piece: str) -> str:
        """The text that can be shown now."""
        *whole, rest = f"{self._line}{piece}".split("\n")
        shown = "".join(self._take(f"{line}\n") for line in whole)
        self._line = rest
        if self._fence or self._shown or not (self._may_be_mark(rest) or self._may_be_silent(rest)):
            shown += self._show(rest)
        return shown

    def end(self) -> str:
        """The text that waited for more."""
        line, self._line = self._line, ""
        return "" if self.silence and not self._begun and re.sub(r"\W+", "", line) in SILENT else self._take(line)

    def _take(self, line: str) -> str:
        """A whole line, of which a part may be shown already."""
        fence = _FENCE.match(line)
        if self._fence:
            closes = fence and fence[1].startswith(self._fence) and line.strip() == fence[1]
            self._fence = "" if closes else self._fence
        elif fence:
            self._fence = fence[1]
        elif not self._shown:
            return self._without_mark(line)
        shown, self._shown, self._recalled = line[self._shown :], 0, False
        self._begun = self._begun or bool(shown.strip())
        return shown

    def _without_mark(self, line: str) -> str:
        if self._recalled and line.lstrip().startswith(">"):
            return ""
        self._recalled = _RECALLED.match(line) is not None
        if _LINE.fullmatch(line.rstrip("\n")):
            return ""
        kept = line
        while stamp := _STAMP.match(kept):
            kept = kept[stamp.end() :]
        self._begun = self._begun or bool(kept.strip())
        return kept if kept.strip() or kept == line else ""

    def _show(self, rest: str) -> str:
        """The part of an unfinished line that is certain to stay."""
        if not self._shown and not self._fence:
            while stamp := _STAMP.match(rest):
                rest = rest[stamp.end() :]
            self._line = rest
        shown, self._shown = rest[self._shown :], len(rest)
        self._begun = self._begun or bool(shown.strip())
        return shown

    def _may_be_mark(self, rest: str) -> bool:
        begins = self._recalled or _FENCE.match(rest) is not None or _OPEN.fullmatch(rest) is not None
        return begins and len(rest) < MAX_MARK

    def _may_be_silent(self, rest: str) -> bool:
        said = re.sub(r"\W+", "", rest)
        return self.silence and not self._begun and any(word.startswith(said) for word in SILENT)


def without_copied_marks(text: str, *, silence: bool = False) -> str:
    """A whole answer without them."""
    marks = CopiedMarks(silence)
    return marks.add(text) + marks.end()
