"""Server-sent events as model streams use them: the payload of each `data:` line."""

from codecs import BOM_UTF8
from collections.abc import Iterator


class DataLines:
    """Splits incoming bytes into payloads; buffers an incomplete line."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads completed by these bytes; comments, empty events and other fields are skipped."""
        ended, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._rest.append(data)
            return
        lines = b"".join((*self._rest, ended)).split(b"\n")
        self._rest = [rest]
        for line in lines:
            field = line.removeprefix(BOM_UTF8)
            if field.startswith(b"data:") and (payload := field[5:].strip()):
                yield payload
