"""The text of bytes in any encoding: by its mark, as UTF-8, as UTF-16 or UTF-32 without a mark, or by detection."""

import codecs
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
    *("mac_cyrillic", "cp437", "cp852", "koi8_u", "iso8859_2", "iso8859_5", "cp932", "euc_jp", "gb18030", "big5"),
    *("cp949", "cp1257"),
)
OF_DOS = ("cp437", "cp850", "cp852", "cp866", "cp932", "gb18030", "big5", "cp949")
"""The encodings in which Windows packs names of files."""

_COMMON = (
    *("äöüß", "éèàçêôîùâœ", "ñóíáúéü", "ãõáéíóúçâê", "åäöøæé", "ışğçöü", "ąęłóśżźćń", "ěščřžýáíéůúťďň", "őűáéíóúöü"),
    *("āčēģīķļņšūžąęėįų", "şţăâî"),
    *("оеаинтсрвлкмдпуія", "αοιετσνηυρπκμλάέήίόύώς", "יוהלאתברמשנ", "ابتدرسعفقكلمنهوية", "อนารกเงมยลวดทส่้ัิี"),
)
"""The letters beyond ASCII that make up most of a text in a language; ideographs are compared by their script."""


_WITHIN_WORDS = re.compile(r"(?<=[^\W\d_])[^\w\x00-\x7f’\u3000-\uffff](?=[^\W\d_])")
"""Signs within words, which count as rare letters."""


LABELS = {"iso-8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
LABELS |= {"euc-kr": "cp949", "ks_c_5601-1987": "cp949", "big5": "big5hkscs", "iso-8859-9": "cp1254"}
"""The encodings that pages and letters mean by a name (WHATWG, Encoding, 4.2); they have more characters."""


_OF_ONE_BYTE = re.compile(r"(?:windows-|cp)125\d|iso[-_]?8859.*|latin.*|us-ascii|")


def decoded_as(raw: bytes, claimed: str, errors: str = "strict") -> str:
    """The text by the encoding that a page or a letter claims; raises `LookupError` or `UnicodeError`.

    Text of one byte a character is hardly ever valid UTF-8 by chance, so the bytes count more than such a claim.
    """
    label = claimed.lower()
    is_utf_8 = _OF_ONE_BYTE.fullmatch(label) and "\ufffd" not in raw.decode(errors="replace")
    return raw.decode("utf-8" if is_utf_8 else LABELS.get(label, label), errors)


class Decoded(NamedTuple):
    """A text; `guess` is the encoding if the bytes don't prove it, else ""."""

    text: str
    guess: str = ""


def decode(raw: bytes) -> str | None:
    """The text; None if the bytes aren't text. A character that is cut off at the end is dropped."""
    return found.text if (found := detected(raw)) else None


def detected(raw: bytes, among: Sequence[str] = _DETECTED) -> Decoded | None:
    """The text and what is doubtful of it; None if the bytes aren't text. `among` begins with the usual encoding."""
    for encoding in ("utf-8", *_WIDE):
        if raw.startswith(mark := "\ufeff".encode(encoding)):
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
    if sample.isascii() and re.search(rb"~\{(?:[\x21-\x77][\x21-\x7e]){2,}~\}", sample):  # RFC 1843
        return Decoded(_decoded(raw, "hz"), "hz")
    if bad * 2 <= sum(map(str.isalpha, filter(_beyond_ascii, text))):
        return Decoded(text)
    encoding, certain = _best(sample, among)
    return Decoded(_decoded(raw, encoding), "" if certain else encoding)


def _decoded(raw: bytes, encoding: str) -> str:
    return codecs.getincrementaldecoder(encoding)("replace").decode(raw)


def _beyond_ascii(character: str) -> bool:
    return character > "\x7f" and character != "\ufffd"


def _wide(sample: bytes) -> Iterator[str]:
    """The encodings of two or four bytes in which the sample is text with the usual spaces and line ends."""
    ascii_only = (rest := sample.translate(None, b"\0")).isascii() and not any(byte in _CONTROLS for byte in rest)
    for encoding in _WIDE:
        text = _decoded(sample, encoding).strip("\0\ufeff")
        odd = sum(not (each.isprintable() or each.isspace()) or each == "\ufffd" for each in text)
        plain = sum(each < "\x80" for each in text)
        if len(text) > 1 and odd * 50 <= len(text) and plain * 50 >= len(text) * (50 if ascii_only else 1) and plain:
            yield encoding


def _best(sample: bytes, among: Sequence[str]) -> tuple[str, bool]:
    """The encoding in which the sample reads best, and whether that is certain."""
    from charset_normalizer import from_bytes

    # Lines of plain ASCII say nothing.
    sample = b"\n".join(line for line in sample.splitlines() if not line.isascii()) or sample
    found = from_bytes(sample, cp_isolation=list(among), threshold=0.6, preemptive_behaviour=False)
    ranks = ((round(each.chaos, 1), *_oddness(str(each), each.encoding), among.index(each.encoding)) for each in found)
    best = min(ranks, default=None)
    beyond = sum(byte > 127 for byte in sample)
    if best is None or beyond < _MIN_DETECTED:
        return among[0], False
    chaos, scripts, rare, place = best  # what is in an encoding beside these mixes scripts, or has mostly rare letters
    return among[place], beyond >= _MIN_CERTAIN and chaos < 0.2 and scripts <= 1 and rare <= 0.5


def _oddness(text: str, encoding: str) -> tuple[int, float]:
    """How many scripts the text mixes, and its share of rare letters: the detector often finds several equally good."""
    shouted = sum(map(str.isupper, text)) * 2 > sum(map(str.isalpha, text))
    beyond = [each for each in text.lower() if _beyond_ascii(each) and each.isalpha()]
    names = {unicodedata.name(each, "?").split()[0] for each in beyond}
    kana = names & {"HIRAGANA", "KATAKANA"}
    # Korean is written in Hangul, Japanese hardly without Kana.
    unlikely = "CJK" in names and (encoding == "cp949" or (encoding in {"cp932", "euc_jp"} and not kana))
    within = len(_WITHIN_WORDS.findall(text))
    usual = max(sum(map(letters.__contains__, beyond)) for letters in _COMMON)
    asian = sum("\u3000" < each < "\uff61" for each in beyond)  # behind them kana of half width, which is rare
    return len(names - kana - {"LATIN"}) + unlikely + shouted, 1 - (usual + asian) / max(1, len(beyond) + within)
