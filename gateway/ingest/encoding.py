"""The text of bytes in any encoding: by its mark, as UTF-8, as UTF-16 or UTF-32 without a mark, or by detection."""

import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b") | {127})
_NULS = re.compile(rb"\0+")
_SAMPLE = 64 * 1024
"""Bytes that decide on the encoding."""
_MIN_CERTAIN = 40
"""Bytes beyond ASCII; by fewer, an encoding is doubtful."""
_MIN_DETECTED = 3
_DETECTED = (
    *("cp1252", "cp1251", "koi8_r", "cp1250", "cp1253", "cp1254", "cp1255", "cp1256", "cp866", "cp874", "mac_roman"),
    *("mac_cyrillic", "cp437", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)

_COMMON = (
    *("äöüß", "éèàçêôîùâœ", "ñóíáúéü", "ãõáéíóúçâê", "åäöøæé", "ışğçöü", "ąęłóśżźćń", "ěščřžýáíéůúťďň", "őűáéíóúöü"),
    *("şţăâî", "оеаинтсрвлкмдпуія", "αοιετσνηυρπκμλάέήίόύώς", "יוהלאתברמשנ", "ابتدرسعفقكلمنهوية", "อนารกเงมยลวดทส่้ัิี"),
)
"""The letters beyond ASCII that make up most of a text in a language; ideographs are compared by their script."""


class Decoded(NamedTuple):
    """A text; `guess` is the encoding if the bytes don't prove it, else ""."""

    text: str
    guess: str = ""


def decode(raw: bytes) -> str | None:
    """The text; None if the bytes aren't text. A character that is cut off at the end is dropped."""
    return found.text if (found := detected(raw)) else None


def detected(raw: bytes) -> Decoded | None:
    """The text and what is doubtful of it; None if the bytes aren't text."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return Decoded(_decoded(raw[len(mark) :], encoding))
    if b"\0" in raw[:_SAMPLE] and (encoding := next(_wide(raw[:_SAMPLE]), "")):
        return Decoded(_decoded(raw, encoding))
    runs = len(_NULS.findall(raw[:_SAMPLE]))
    raw = raw.replace(b"\0", b"")
    sample = raw[:_SAMPLE]
    controls = runs + len(sample) - len(sample.translate(None, _CONTROLS))
    text = _decoded(raw, "utf-8")
    bad = text.count("\ufffd")
    # Binary data has a control character among ten bytes, and isn't valid UTF-8.
    if controls * (50 if bad else 6) > len(sample) or not (raw or text):
        return None
    if b"\x1b$" in sample and not bad:
        return Decoded(_decoded(raw, "iso2022_jp"))
    if bad * 2 <= sum(map(str.isalpha, filter(_beyond_ascii, text))):
        return Decoded(text)
    encoding, certain = _best(sample)
    return Decoded(_decoded(raw, encoding), "" if certain else encoding)


def _decoded(raw: bytes, encoding: str) -> str:
    return codecs.getincrementaldecoder(encoding)("replace").decode(raw)


def _beyond_ascii(character: str) -> bool:
    return character > "\x7f" and character != "\ufffd"


def _wide(sample: bytes) -> Iterator[str]:
    """The encodings of two or four bytes in which the sample is text with the usual spaces and line ends."""
    for encoding in _WIDE:
        text = _decoded(sample, encoding).strip("\0\ufeff")
        odd = sum(not (each.isprintable() or each.isspace()) or each == "\ufffd" for each in text)
        plain = sum(each < "\x80" for each in text)
        if len(text) > 1 and odd * 50 <= len(text) and plain * 50 >= len(text) and plain:
            yield encoding


def _best(sample: bytes) -> tuple[str, bool]:
    """The encoding in which the sample reads best, and whether that is certain."""
    from charset_normalizer import from_bytes

    sample = _distinctive(sample)
    found = from_bytes(sample, cp_isolation=list(_DETECTED), threshold=0.6, preemptive_behaviour=False)
    best = min(found, key=lambda each: (round(each.chaos, 1), *_oddness(str(each), each.encoding)), default=None)
    beyond = sum(byte > 127 for byte in sample)
    if best is None or beyond < _MIN_DETECTED:
        return "cp1252", False
    return best.encoding, beyond >= _MIN_CERTAIN


def _oddness(text: str, encoding: str) -> tuple[int, float]:
    """How many scripts the text mixes, and its share of rare letters: the detector often finds several equally good."""
    shouted = sum(map(str.isupper, text)) * 2 > sum(map(str.isalpha, text))
    beyond = [each for each in text.lower() if _beyond_ascii(each) and each.isalpha()]
    names = {unicodedata.name(each, "?").split()[0] for each in beyond}
    kana = names & {"HIRAGANA", "KATAKANA"}
    # Korean is written in Hangul, Japanese hardly without Kana.
    unlikely = "CJK" in names and (encoding == "cp949" or (encoding in {"cp932", "euc_jp"} and not kana))
    usual = max(sum(map(letters.__contains__, beyond)) for letters in _COMMON)
    asian = sum(each > "\u3000" for each in beyond)
    return len(names - kana - {"LATIN"}) + unlikely + shouted, 1 - (usual + asian) / max(1, len(beyond))


def _distinctive(sample: bytes) -> bytes:
    """The lines that aren't plain ASCII, which says nothing."""
    return b"\n".join(line for line in sample.splitlines() if not line.isascii()) or sample
