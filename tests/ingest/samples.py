"""One file of each kind, made here, with the words that must be found in it."""

import email.message
import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher
from msoffcrypto.format.ooxml import OOXMLFile
from PIL import Image

from gateway.ingest.output import FileKind
from tests.ingest.pictures import ENGLISH, written

_SPACES = " ".join(
    f'xmlns:{short}="http://schemas.openxmlformats.org/{name}"'
    for short, name in (
        ("w", "wordprocessingml/2006/main"),
        ("wp", "drawingml/2006/wordprocessingDrawing"),
        ("a", "drawingml/2006/main"),
        ("pic", "drawingml/2006/picture"),
        ("r", "officeDocument/2006/relationships"),
    )
)
IMAGE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/image"
LINKED_PICTURE = (
    '<w:p><w:r><w:drawing><wp:inline><a:graphic><a:graphicData><pic:pic><pic:blipFill><a:blip r:link="r9"/>'
    "</pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
)
ODT = "application/vnd.oasis.opendocument."


class Sample(NamedTuple):
    """A file, what it is, and words of its text."""

    name: str
    kind: FileKind
    content: bytes
    words: tuple[str, ...]


def pdf(*pages: str, extra: bytes = b"", trailer: bytes = b"") -> bytes:
    """Pages of one line each in Helvetica; `extra` is one more object."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * index) for index in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(pages), kids),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for index, line in enumerate(pages):
        drawn = b"BT /F1 24 Tf 50 700 Td (%s) Tj ET" % line.encode("cp1252")
        resources = b"/Resources<</Font<</F1 3 0 R>>>>"
        objects += [
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]%s/Contents %d 0 R>>" % (resources, 5 + 2 * index),
            b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
        ]
    return assembled([*objects, *([extra] if extra else [])], trailer)


def assembled(objects: list[bytes], trailer: bytes = b"") -> bytes:
    out, places = bytearray(b"%PDF-1.7\n"), []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start)
    return bytes(out)


def locked_pdf() -> bytes:
    """Nobody knows the password."""
    key = b"<" + b"5a" * 32 + b">"
    security = b"<</Filter/Standard/V 1/R 2/O%s/U%s/P -44>>" % (key, key)
    return pdf("secret", extra=security, trailer=b"/Encrypt 6 0 R/ID[<00><00>]")


def unlockable_pdf(text: str, password: bytes) -> bytes:
    """Encrypted by the standard handler, revision 2 (ISO 32000-1, 7.6.3)."""
    fill = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")
    padded, flags = (password + fill)[:32], b"\xd4\xff\xff\xff"
    owner = _rc4(hashlib.md5(padded).digest()[:5], padded)
    key = hashlib.md5(padded + owner + flags + b"\0").digest()[:5]
    security = f"<</Filter/Standard/V 1/R 2/O<{owner.hex()}>/U<{_rc4(key, fill).hex()}>/P -44>>"
    plain = pdf(text, extra=security.encode(), trailer=b"/Encrypt 6 0 R/ID[<00><00>]")
    start, end = plain.index(b"stream\n") + 7, plain.index(b"\nendstream")
    return plain[:start] + _rc4(hashlib.md5(key + b"\5\0\0\0\0").digest()[:10], plain[start:end]) + plain[end:]


def _rc4(key: bytes, data: bytes) -> bytes:
    return Cipher(ARC4(key), None).encryptor().update(data)


def unlockable_office(plain: bytes, password: str) -> bytes:
    out = io.BytesIO()
    OOXMLFile(io.BytesIO(plain)).encrypt(password, out)
    return out.getvalue()


def unlockable_zip(name: str, content: bytes, password: bytes) -> bytes:
    """One stored file, encrypted traditionally (APPNOTE 6.1)."""
    keys = [0x12345678, 0x23456789, 0x34567890]

    def crc(byte: int, before: int) -> int:
        return zlib.crc32(bytes([byte]), before ^ 0xFFFFFFFF) ^ 0xFFFFFFFF

    def update(byte: int) -> None:
        keys[0] = crc(byte, keys[0])
        keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
        keys[2] = crc(keys[1] >> 24, keys[2])

    def encrypted(byte: int) -> int:
        half = keys[2] | 2
        mask = (half * (half ^ 1)) >> 8 & 0xFF
        update(byte)
        return byte ^ mask

    for byte in password:
        update(byte)
    check = zlib.crc32(content)
    archive = bytearray(zipped({name: bytes(map(encrypted, bytes(11) + bytes([check >> 24]) + content))}, ZIP_STORED))
    for start in (6, archive.index(b"PK\1\2") + 8):
        archive[start] |= 1
        struct.pack_into("<I", archive, start + 8, check)
        struct.pack_into("<I", archive, start + 16, len(content))
    return bytes(archive)


def scan() -> bytes:
    """Pages that are only pictures."""
    out = io.BytesIO()
    pages = [page_of(ENGLISH), page_of(ENGLISH[::-1])]
    pages[0].save(out, "PDF", save_all=True, append_images=pages[1:], resolution=100)
    return out.getvalue()


def page_of(lines: tuple[str, ...]) -> Image.Image:
    page = Image.new("RGB", (827, 1169), "white")
    page.paste(written(lines, 26), (40, 60))
    return page


def picture(form: str = "PNG", lines: tuple[str, ...] = ENGLISH[:2], **options: object) -> bytes:
    return encoded(written(lines, 40), form, **options)


def animation() -> bytes:
    frames = [Image.new("RGB", (40, 40), colour) for colour in ("white", "red")]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def zipped(entries: Mapping[str, str | bytes], method: int = ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx(extra: str = "", relations: str = "") -> bytes:
    rows = "".join(
        f"<w:tr>{''.join(f'<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>' for cell in row)}</w:tr>"
        for row in (("Item", "Price"), ("Tea", "2.50"))
    )
    body = f"<w:p><w:r><w:t>Lease for the Königsallee</w:t></w:r></w:p>{extra}<w:tbl>{rows}</w:tbl>"
    office = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    types = "http://schemas.openxmlformats.org/package/2006/"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{types}content-types">'
            f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{office}"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{types}relationships">'
            f'<Relationship Id="r1" Type="{relation}" Target="word/document.xml"/></Relationships>',
            "word/document.xml": f"<w:document {_SPACES}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{types}relationships">{relations}</Relationships>',
        }
    )


def xlsx(rows: int = 0) -> bytes:
    import openpyxl

    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.title = "Costs"
    for row in (("Month", "Rent"), ("January", 1200), ("February", 1250.5)):
        book.active.append(row)
    for number in range(rows):
        book.active.append((number, "Tea", 2.5))
    book.create_sheet("Notes").append(("Paid by Jörg",))
    book.save(out)
    return out.getvalue()


def pptx() -> bytes:
    import pptx as library
    from pptx.util import Inches

    deck, out = library.Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Roadmap for spring"
    table = slide.shapes.add_table(1, 2, *(Inches(1),) * 4).table
    table.cell(0, 0).text, table.cell(0, 1).text = "April", "Launch"
    slide.shapes.add_group_shape().shapes.add_textbox(*(Inches(1),) * 4).text_frame.text = "inside a group"
    slide.notes_slide.notes_text_frame.text = "Say thanks to Zoë"
    deck.save(out)
    return out.getvalue()


def opendocument(kind: str, body: str, doctype: str = "") -> bytes:
    names = "".join(
        f' xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{short}:1.0"' for short in ("office", "text", "table")
    )
    content = f"{doctype}<office:document-content{names}><office:body>{body}</office:body></office:document-content>"
    return zipped({"mimetype": ODT + kind, "content.xml": content})


def epub() -> bytes:
    chapter = (
        "<html xmlns='http://www.w3.org/1999/xhtml'><body><h1>Chapter {0}</h1><p>It was day {0}.</p></body></html>"
    )
    package = (
        "<package xmlns='http://www.idpf.org/2007/opf'><metadata xmlns:dc='http://purl.org/dc/elements/1.1/'>"
        "<dc:title>The Voyage</dc:title><dc:creator>Ida Pfeiffer</dc:creator></metadata><manifest>"
        "<item id='b' href='two.xhtml'/><item id='a' href='one%20.xhtml'/></manifest>"
        "<spine><itemref idref='a'/><itemref idref='b'/></spine></package>"
    )
    container = "<container xmlns='urn:x'><rootfiles><rootfile full-path='o/p.opf'/></rootfiles></container>"
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "o/p.opf": package,
            "o/one .xhtml": chapter.format(1),
            "o/two.xhtml": chapter.format(2),
        }
    )


def letter() -> bytes:
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ada <ada@example.org>", "bob@example.org", "Grüße"
    message.set_content("See you on Tuesday.")
    message.add_attachment(b"x", maintype="application", subtype="pdf", filename="plan.pdf")
    return message.as_bytes()


HTML = (
    "<!DOCTYPE html><html><head><title>Opening hours</title><script>alert('x')</script></head><body><h1>Café</h1>"
    "<p>Open from <b>nine</b>.<img src='http://127.0.0.1:9/x.png'></p><ul><li>Monday</li></ul></body></html>"
)
ODT_TEXT = (
    "<office:text><text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:h>Title</text:h>"
    "<text:p>Body<text:s/>ä</text:p></office:text>"
)
ODS = (
    "<office:spreadsheet><table:table table:name='Stock'><table:table-row><table:table-cell><text:p>Tea</text:p>"
    "</table:table-cell><table:table-cell><text:p>7</text:p></table:table-cell></table:table-row></table:table></office:spreadsheet>"
)


def samples() -> list[Sample]:
    """Every kind that is read, and those of which only the name is known."""
    return [
        Sample(
            "letter.pdf",
            "pdf",
            pdf("Rental agreement for Müller", "Second page of the agreement"),
            ("Rental agreement for Müller", "Second"),
        ),
        Sample("scan.pdf", "pdf", scan(), ("quick brown fox", "14 days")),
        Sample("sign.png", "image", picture(), ("quick brown fox",)),
        Sample("sign.jpg", "image", picture("JPEG", quality=80), ("quick brown fox",)),
        Sample("sign.webp", "image", picture("WEBP"), ("quick brown fox",)),
        Sample("lease.docx", "document", docx(), ("Lease for the Königsallee", "Tea | 2.50")),
        Sample("costs.xlsx", "sheet", xlsx(), ("## Costs", "February | 1250.5", "Paid by Jörg")),
        Sample(
            "deck.pptx",
            "slides",
            pptx(),
            ("Roadmap for spring", "April | Launch", "inside a group", "Notes: Say thanks to Zoë"),
        ),
        Sample(
            "note.odt",
            "document",
            opendocument("text", ODT_TEXT),
            ("# Title", "Body ä"),
        ),
        Sample("stock.ods", "sheet", opendocument("spreadsheet", ODS), ("## Stock", "Tea | 7")),
        Sample("hours.html", "page", HTML.encode(), ("# Café", "Open from nine.", "- Monday")),
        Sample("voyage.epub", "book", epub(), ("# Chapter 1", "It was day 2.")),
        Sample("note.txt", "text", "Grüße aus Köln".encode("cp1252"), ("Grüße aus Köln",)),
        Sample("wide.txt", "text", "Grüße aus Köln".encode("utf-16"), ("Grüße aus Köln",)),
        Sample("job.py", "code", b"def job() -> None:\n    pass\n", ("def job()",)),
        Sample("data.csv", "table", b"name;age\nAda;36\nBob;40\n", ("Ada;36",)),
        Sample("data.json", "text", json.dumps({"a": 1, "b": [2]}).encode(), ('"b": [2]',)),
        Sample(
            "files.zip",
            "archive",
            zipped({"../../etc/cron.d/x": "evil", "b/photo.jpg": b"12345"}),
            ("../../etc/cron.d/x", "5  b/photo.jpg"),
        ),
        Sample(
            "hello.eml",
            "document",
            letter(),
            ("From: Ada", "Subject: Grüße", "See you on Tuesday.", "Attached: plan.pdf"),
        ),
        Sample("sound.wav", "audio", b"RIFF\0\0\0\0WAVEfmt ", ()),
        Sample("voice.ogg", "audio", b"OggS\0\2" + bytes(22) + b"OpusHead", ()),
        Sample("film.mp4", "video", b"\0\0\0\x18ftypisom" + bytes(16), ()),
    ]
