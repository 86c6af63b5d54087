"""The output of a program, limited in size: its beginning and its end, or pages of the end."""

import codecs
from dataclasses import dataclass, field


@dataclass(slots=True)
class BoundedOutput:
    """The first and the last bytes of an output; `size` counts those between, too, which are dropped."""

    head_bytes: int
    tail_bytes: int
    size: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)

    def add(self, piece: bytes) -> None:
        """Append a piece."""
        self.size += len(piece)
        room = self.head_bytes - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        del self._tail[: -self.tail_bytes]

    def text(self) -> str:
        """All that was kept, with a note of what was dropped; bytes that aren't UTF-8 are replaced."""
        dropped = self.size - len(self._head) - len(self._tail)
        between = f"\n[... {dropped:,} bytes are left out ...]\n".encode() if dropped else b""
        return (self._head + between + self._tail).decode("utf-8", "replace")

    def page(self, since: int, limit: int, *, whole: bool) -> tuple[str, int, int]:
        """Text of the end from a place on, how many bytes were dropped before it, and the place after it.

        A character that is cut waits for its rest, unless the output is `whole`.
        """
        first = self.size - len(self._tail)
        at = min(max(since, first), self.size)
        piece = bytes(self._tail[at - first : at - first + limit])
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(piece, final=whole and at + len(piece) == self.size)
        return text, max(0, at - since), at + len(piece) - len(decoder.getstate()[0])
