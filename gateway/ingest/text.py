"""Text, code, JSON and tables of comma-separated values, in whatever encoding they come."""

import codecs
from pathlib import Path

from gateway.ingest.limits import SOURCE
from gateway.ingest.output import Output

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_TEXT_BYTES = frozenset(range(32, 256)) - {127} | set(b"\t\n\r\f\b\x1b")


def read_text(source: Path, out: Output) -> str:
    """The description."""
    text = decode(start_of(source, out)) or ""
    lines = len(text.splitlines())
    out.add(text)
    return f"{lines:,} line{'s' * (lines != 1)}: {out.first_line()}"


def start_of(source: Path, out: Output) -> bytes:
    """No more than `SOURCE`; that there is more is said."""
    with source.open("rb") as file:
        raw = file.read(SOURCE)
        if file.read(1):
            out.problem = f"only the first {SOURCE >> 20} MB were read"
    return raw


def decode(raw: bytes) -> str | None:
    """None for what is no text; a character cut off at the end is left out."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return codecs.getincrementaldecoder(encoding)("replace").decode(raw[len(mark) :])
    if not _TEXT_BYTES.issuperset(raw[:100_000]):
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")
