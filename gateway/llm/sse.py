"""Server-sent events as model streams use them: the payload of each `data:` line."""

from collections.abc import Iterator


class DataLines:
    """Splits incoming bytes into payloads; buffers an incomplete line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads completed by these bytes; comments, blank lines and other fields are skipped."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
