"""Whatever a file holds is read, or named as left out."""

import base64
import email.message
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

import openpyxl
import pptx
import pytest
from lxml import etree
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.drawing.image import Image as SheetImage
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from gateway.ingest import output
from gateway.ingest.documents import Use, use_of
from tests.ingest import samples
from tests.ingest.conftest import Found
from tests.ingest.samples import zipped

Read = Callable[[bytes, str], Found]

HEIC = base64.b64decode(
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAXxtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAA"
    "ACJpbG9jAAAAAERAAAEAAQAAAAABoAABAAAAAAAAACcAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAAAA5waXRt"
    "AAAAAAABAAAA/GlwcnAAAADcaXBjbwAAAHVodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMA"
    "AAMAHroCQGEAAQApQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbqrprm4CGgwIAAAAyAAAADAIRiAAEABkQBwXPBiQAAABNjb2xybmNs"
    "eAABAA0ABoAAAAAUaXNwZQAAAAAAAABAAAAAQAAAAChjbGFwAAAAEAAAAAEAAAAQAAAAAf///9AAAAAC////0AAAAAIAAAAQcGl4"
    "aQAAAAADCAgIAAAAGGlwbWEAAAAAAAAAAQABBYECAwWEAAAAL21kYXQAAAAjKAGvBBITjOD46cJoP91R/FqVtJ7yftCrK+NJn3ex"
    "GJKp/6A="
)
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
EQUATION = (
    f"<w:p><m:oMathPara {M}><m:oMath><m:r><m:t>E=m</m:t></m:r><m:sSup>"
    "<m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></m:oMathPara></w:p>"
)
DELETED = "<w:p><w:del><w:r><w:delText>not this</w:delText></w:r></w:del><w:r><w:t>but this</w:t></w:r></w:p>"


def with_parts(content: bytes, parts: Mapping[str, str | bytes]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        return zipped({**{name: old.read(name) for name in old.namelist()}, **parts})


def word(text: str, tag: str) -> str:
    return f"<w:{tag} {W}><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:{tag}>"


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (0.19, "0%", "19%"),
        (0.1234, "0.00%", "12.34%"),
        (1234.5, '#,##0.00\\ "€"', "1,234.50 €"),
        (1234.5, "[$£-809]#,##0.00", "£1,234.50"),
        (-1234.5, "_-* #,##0.00\\ [$€-407]_-;[Red]-* #,##0.00\\ [$€-407]_-", "-1,234.50 €"),
        (-5, "$#,##0_);($#,##0)", "($5)"),
        (0.5, "General", "0.5"),
        (12.0, "0", "12"),
        (1067, "00000", "01067"),
        (5551234, "000\\-0000", "5551234"),
        (1500, '#,##0 "EUR"', "1,500 EUR"),
        (1e-7, "0.00E+00", "1e-07"),
        (0.5, "# ?/?", "0.5"),
        (True, "0%", "True"),
        (datetime(2026, 3, 1), "dd/mm/yyyy", "2026-03-01"),
        (datetime(2026, 3, 1, 9, 30), "dd/mm/yyyy hh:mm", "2026-03-01 09:30:00"),
    ],
)
def test_cells_are_read_as_excel_shows_them(value: object, form: str, shown: str, found: Read) -> None:
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["rate", value])
    book.active["B1"].number_format = form
    book.save(out)
    assert found(out.getvalue(), "x.xlsx").text.splitlines()[1] == f"rate | {shown}"


def test_a_word_document_is_read_with_all_around_its_text(found: Read) -> None:
    comment = word("280 was agreed", "comment").replace("<w:comment ", '<w:comment w:id="1" w:author="Bo" ')
    comments = f"<w:comments {W}>{comment}</w:comments>"
    content = with_parts(
        samples.docx(EQUATION + DELETED),
        {
            "word/header1.xml": word("Contract 55", "hdr"),
            "word/footer1.xml": word("Page one", "ftr"),
            "word/comments.xml": comments,
            "word/media/image1.png": samples.picture(lines=("TOTAL 90210",)),
            "word/vbaProject.bin": b"x",
            "word/novelty.xml": "<x/>",
        },
    )
    file, text = found(content, "x.docx")
    for words in ("E=mc^(2)", "but this", "[header: Contract 55]", "[footer: Page one]", "90210"):
        assert words in text
    assert "[comment by Bo: 280 was agreed]" in text
    assert "--- file: image1.png ---" in text
    assert file.problem == "left out: 1 deleted passage (tracked change), 1 macro, 1 unrecognised part"


@pytest.mark.parametrize(
    "around",
    [
        "<w:moveTo>{}</w:moveTo>",
        "<w:fldSimple>{}</w:fldSimple>",
        "<w:customXml>{}</w:customXml>",
        "<w:bdo>{}</w:bdo>",
        "<w:r><w:ruby><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>",
    ],
)
def test_words_in_unusual_elements_of_a_word_document_are_read(around: str, found: Read) -> None:
    text = found(samples.docx(f"<w:p>{around.format('<w:r><w:t>14 green pegs</w:t></w:r>')}</w:p>"), "x.docx").text
    assert "14 green pegs" in text


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_that_is_listed_twice_is_read_once(found: Read) -> None:
    out = io.BytesIO(with_parts(samples.docx(), {"word/media/note.txt": "first"}))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("word/media/note.txt", "second")
    assert found(out.getvalue(), "x.docx").text.count("--- file: note.txt ---") == 1


def test_a_workbook_is_read_with_formulas_comments_charts_and_pictures(found: Read) -> None:
    book, out = openpyxl.Workbook(), io.BytesIO()
    sheet = book.active
    for row in (("Rent", 700), ("Food", 300), ("Total", "=SUM(B1:B2)")):
        sheet.append(row)
    sheet["A1"].comment = Comment("warm or cold?", "Bo")
    chart = BarChart()
    chart.title = "Costs by kind"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=2))
    sheet.add_chart(chart, "D1")
    sheet.add_image(SheetImage(io.BytesIO(samples.picture(lines=("TOTAL 90210",)))), "D9")
    book.save(out)
    text = found(out.getvalue(), "x.xlsx").text
    for words in ("Total | =SUM(B1:B2)", "on A1: warm or cold?", "[chart: Costs by kind]", "90210"):
        assert words in text


@pytest.mark.parametrize("kind", ["slideshow", "template"])
def test_slide_shows_and_templates_are_read_as_slides(kind: str, found: Read) -> None:
    with zipfile.ZipFile(io.BytesIO(samples.pptx())) as deck:
        types = deck.read("[Content_Types].xml").replace(b"presentation.main+xml", kind.encode() + b".main+xml")
    assert "Roadmap for spring" in found(with_parts(samples.pptx(), {"[Content_Types].xml": types}), "x.ppsx").text


def test_slides_are_read_with_charts_and_pictures(found: Read) -> None:
    deck, out = pptx.Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    data = CategoryChartData()
    data.categories = ["North", "South"]
    data.add_series("Sales", (19.5, 4711))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *(Inches(1),) * 4, data)
    slide.shapes.add_picture(io.BytesIO(samples.picture(lines=("TOTAL 90210",))), Inches(1), Inches(1))
    deck.save(out)
    file, text = found(out.getvalue(), "x.pptx")
    assert "Sales: 19.5, 4711 (for North, South)" in text
    assert "90210" in text
    assert file.problem == ""


ADDRESS = "https://example.org/lease?page=2"


def linked() -> Iterator[tuple[str, bytes]]:
    """Files of each kind in which an address is behind words."""
    page = f'<p>Read <a href="{ADDRESS}">the lease</a> or <a href="{ADDRESS}">{ADDRESS}</a></p>'.encode()
    yield "x.html", page
    yield "x.eml", b"Subject: Rent\nContent-Type: text/html\n\n" + page
    reference = '<w:hyperlink r:id="rId77"><w:r><w:t>the lease</w:t></w:r></w:hyperlink>'
    relation = f'<Relationship Id="rId77" Type="{RELATIONS}/hyperlink" Target="{ADDRESS}" TargetMode="External"/>'
    yield "x.docx", samples.docx(f'<w:p xmlns:r="{RELATIONS}">{reference}</w:p>', relation)
    anchor = (
        f'<text:p><text:a xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="{ADDRESS}">the lease</text:a></text:p>'
    )
    yield "x.odt", samples.opendocument("text", f"<office:text>{anchor}</office:text>")
    book, deck, out = openpyxl.Workbook(), pptx.Presentation(), io.BytesIO()
    book.active["A1"], book.active["A1"].hyperlink = "the lease", ADDRESS
    book.save(out)
    yield "x.xlsx", out.getvalue()
    box = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_textbox(*(Inches(1),) * 4)
    run = box.text_frame.paragraphs[0].add_run()
    run.text, run.hyperlink.address = "the lease", ADDRESS
    deck.save(out := io.BytesIO())
    yield "x.pptx", out.getvalue()


@pytest.mark.parametrize(("name", "content"), [*linked()], ids=lambda each: each if isinstance(each, str) else "")
def test_an_address_behind_words_stands_beside_them(name: str, content: bytes, found: Read) -> None:
    text = found(content, name).text
    assert "the lease" in text
    assert text.count(ADDRESS) == (2 if name in {"x.html", "x.eml"} else 1)


def test_rich_text_is_read_and_what_stands_beside_it_named(found: Read) -> None:
    pictures = rb"{\*\shppict{\pict 00}}{\nonshppict{\pict 00}}"
    head = rb"{\rtf1\ansi\ansicpg1252{\header Top}\headery720 "
    content = head + rb"Rent f\'fcr May: 700 \'80" + pictures + rb"\par}"
    file, text = found(content, "x.doc")
    assert text.strip() == "Rent für May: 700 €"
    assert file.problem == "left out: 1 header, 1 picture"


@pytest.mark.parametrize(
    ("part", "use"),
    [
        ("word/document.xml", Use.MAIN),
        ("xl/worksheets/sheet12.xml", Use.MAIN),
        ("ppt/slideLayouts/slideLayout1.xml", Use.FORM),
        ("word/media/image1.emf", Use.FILE),
        ("ppt/embeddings/Microsoft_Excel_Sheet1.xlsx", Use.FILE),
        ("xl/pivotTables/pivotTable1.xml", "pivot table"),
        ("word/embeddings/oleObject1.bin", "embedded object"),
        ("xl/vbaProject.bin", "macro"),
        ("word/of/next/year.xml", "unrecognised part"),
    ],
)
def test_each_part_is_used_or_named(part: str, use: object) -> None:
    assert use_of(part) == use


def letter(*attached: tuple[str, bytes]) -> email.message.EmailMessage:
    message = email.message.EmailMessage()
    message["From"], message["Subject"] = "bo@example.org", "Outer"
    message.set_content("See inside.")
    for name, content in attached:
        message.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    return message


def drawn(words: str) -> str:
    """A text box of Word, as it is without a form for old programs."""
    box = f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>"
    graphic = f"<a:graphic><a:graphicData><w:txbxContent>{box}</w:txbxContent></a:graphicData></a:graphic>"
    return f"<w:p><w:r><w:drawing><wp:anchor>{graphic}</wp:anchor></w:drawing></w:r></w:p>"


OLD_CARD = (
    b"BEGIN:VCARD\r\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;J=C3=\r\n=B6rg\r\n"
    b"NOTE;QUOTED-PRINTABLE:14=20pegs\r\nEND:VCARD\r\n"
)


def with_edges() -> bytes:
    """A workbook whose printed pages have a header in three parts, with fonts, and a footer."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active["A1"] = "total"
    book.active.oddHeader.left.text = 'Budget &"Arial,Bold"2026 &KFF0000R&&D'
    book.active.oddHeader.right.text = "| page &P"
    book.active.oddFooter.center.text = "internal"
    book.save(out)
    return out.getvalue()


def rich_note() -> bytes:
    """A text on a page whose words are only in its rich form."""
    rich = b'(<?xml version="1.0"?><body xmlns="http://www.w3.org/1999/xhtml"><p>ask again <b>in May</b></p></body>)'
    return samples.assembled(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Annots[4 0 R]>>",
            b"<</Type/Annot/Subtype/FreeText/T(Cy)/RC %b/Rect[50 500 200 520]>>" % rich,
        ]
    )


def deck() -> bytes:
    """A slide with a soft line break, and a shape that only newer programs show, with an equation and a description."""
    show, out = pptx.Presentation(), io.BytesIO()
    slide = show.slides.add_slide(show.slide_layouts[6])
    boxes = [slide.shapes.add_textbox(*(Inches(1),) * 4) for _ in range(2)]
    boxes[0].text_frame.text = "one\vtwo"
    new = boxes[1].element
    new.nvSpPr.cNvPr.set("descr", "the plan")
    run = etree.fromstring(f"<m:oMath {M}><m:d><m:e><m:r><m:t>a+b</m:t></m:r></m:e></m:d></m:oMath>")
    boxes[1].text_frame.paragraphs[0]._p.append(run)
    tree, space = new.getparent(), "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
    tree.remove(new)
    etree.SubElement(etree.SubElement(tree, f"{space}AlternateContent"), f"{space}Choice").append(new)
    show.save(out)
    return out.getvalue()


def stock() -> bytes:
    cells = "<table:table-cell table:number-columns-repeated='2'><text:p>7</text:p></table:table-cell>"
    cells += "<table:table-cell table:number-columns-repeated='2'/><table:table-cell office:value='9'/>"
    rows = f"<table:table-row table:number-rows-repeated='3'>{cells}</table:table-row>"
    content = samples.opendocument("spreadsheet", f"<office:s><table:table>{rows}</table:table></office:s>")
    return with_parts(content, {"Object 1": b"x", "media/a.bin": b"\0\1\2"})


def wide() -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(list(range(output.MAX_COLUMNS + 1)))
    book.save(out)
    return out.getvalue()


ODD = "left out: 1 layout of an unusual document (its words were read)"
BROKEN = (
    '<w:r><w:footnoteReference w:id="77"/></w:r>',
    f'<w:hyperlink xmlns:r="{RELATIONS}" r:id="gone"><w:r><w:t>link</w:t></w:r></w:hyperlink>',
    '<w:r><w:sym w:font="Wingdings" w:char="zz"/></w:r>',
    '<w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:delText>not this</w:delText></w:r>',
)
CLAIMS = ("iso-8859-1", "windows-1252", "us-ascii")
ONLY_AMP = (
    b"Content-Type: multipart/alternative; boundary=x\n\n--x\nContent-Type: text/x-amp-html\n\n"
    b"<html><body>14 pegs</body></html>\n--x--\n"
)


def with_notes() -> bytes:
    """A document with notes that no place in it refers to."""
    notes = {"word/footnotes.xml": ("footnotes", "footnote", "unplaced")}
    notes |= {"word/endnotes.xml": ("endnotes", "endnote", "no place refers to it")}
    return with_parts(
        samples.docx(),
        {
            part: f'<w:{all} {W}><w:{one} w:id="1"><w:p><w:r><w:t>{words}</w:t></w:r></w:p></w:{one}></w:{all}>'
            for part, (all, one, words) in notes.items()
        },
    )


def unlisted() -> bytes:
    """A book with notes that are linked from its chapters only."""
    with zipfile.ZipFile(io.BytesIO(samples.epub())) as old:
        [package] = [name for name in old.namelist() if name.endswith(".opf")]
        item = b'<item id="notes" href="notes.xhtml" media-type="application/xhtml+xml"/></manifest>'
        changed = old.read(package).replace(b"</manifest>", item)
    folder = package.rpartition("/")[0]
    notes = f"{folder}/notes.xhtml" if folder else "notes.xhtml"
    return with_parts(samples.epub(), {package: changed, notes: "<html><body>14 pegs</body></html>"})


def template() -> bytes:
    body = "<d xmlns:o='o'><o:body><o:text><o:p>14 pegs</o:p></o:text></o:body></d>"
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text-template", "content.xml": body})


def book() -> bytes:
    """A book with a protected chapter."""
    sealed = "<e><CipherReference URI='o/two.xhtml'/></e>"
    return with_parts(samples.epub(), {"META-INF/encryption.xml": sealed})


def packed() -> bytes:
    """An archive with a file of an unusual method, a damaged one, and what macOS adds."""
    files = {"a.txt": "unusual", "b.txt": "damaged", "__MACOSX/._c.txt": b"\0\5\x16\7", "c.txt": "fine"}
    content = bytearray(zipped(files | {f"{n}.bin": b"\0\1\2" for n in range(5)}, zipfile.ZIP_STORED))
    content[content.index(b"PK\1\2") + 10] = content[8] = 9
    content[content.index(b"damaged")] ^= 1
    return bytes(content)


def notebook() -> bytes:
    data = {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>14 pegs</b>", "application/x": 1}
    cell = {"cell_type": "code", "source": "1", "outputs": [{"data": data}], "attachments": {"a.png": {}}}
    return json.dumps({"cells": [cell]}).encode()


def contract() -> bytes:
    """Headings numbered by style, a list that goes on behind a paragraph, letters, a list begun anew, and dashes."""

    def level(depth: int, form: str, text: str, start: int = 1) -> str:
        about = f'<w:start w:val="{start}"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/>'
        return f'<w:lvl w:ilvl="{depth}">{about}</w:lvl>'

    def item(text: str, number: int, depth: int = 0) -> str:
        place = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>'
        return f"<w:p><w:pPr>{place}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"

    kinds = (
        level(0, "decimal", "%1.") + level(1, "decimal", "%1.%2"),
        level(0, "decimal", "%1)", 3) + level(1, "lowerLetter", "(%2)") + level(2, "upperRoman", "%3."),
        level(0, "bullet", "\uf0b7"),
    )
    numbering = "".join(
        f'<w:abstractNum w:abstractNumId="{at}">{kind}</w:abstractNum>' for at, kind in enumerate(kinds)
    )
    anew = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="3"/></w:lvlOverride>'
    numbering += "".join(
        f'<w:num w:numId="{number}"><w:abstractNumId w:val="{kind}"/>{more}</w:num>'
        for number, kind, more in ((1, 0, ""), (2, 1, ""), (3, 1, anew), (4, 2, ""), (5, 9, ""))
    )
    place = '<w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr>'
    heading = f'<w:style w:type="paragraph" w:styleId="H2"><w:pPr>{place}</w:pPr></w:style>'
    body = item("Scope", 1) + '<w:p><w:pPr><w:pStyle w:val="H2"/></w:pPr><w:r><w:t>Rent</w:t></w:r></w:p>'
    body += item("third", 2) + "<w:p><w:r><w:t>between</w:t></w:r></w:p>" + item("fourth", 2) + item("letter", 2, 1)
    body += item("roman", 2, 2) + item("roman", 2, 2) + item("anew", 3) + item("dash", 4) + item("unknown", 5)
    parts = {
        "word/numbering.xml": f"<w:numbering {W}>{numbering}</w:numbering>",
        "word/styles.xml": f"<w:styles {W}>{heading}</w:styles>",
    }
    return with_parts(samples.docx(body), parts)


MARKS = "1. Scope|1.1 Rent|3) third|between|4) fourth|(a) letter|I. roman|II. roman|3) anew|- dash|unknown".replace(
    "|", "\n\n"
)


def foreign(name: str, encoding: str, comment: bytes = b"") -> bytes:
    """An archive whose names are in an encoding of Windows, without the flag of UTF-8."""
    raw, length = name.encode(encoding), len(name.encode(encoding))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x" * length, "14 pegs")
        archive.comment = comment
    return out.getvalue().replace(b"x" * length, raw)


BOUNCE = (
    b"Subject: x\nContent-Type: multipart/report; boundary=b\n\n--b\n\nIt came back.\n--b\n"
    b"Content-Type: message/delivery-status\n\nReporting-MTA: dns; e.org\n\nFinal-Recipient: rfc822; bo@e.org\n--b--\n"
)
INSIDE = b"Subject: x\nContent-Type: text/html\n\n<p>14 pegs</p><img src='data:image/png;base64,AA'>"
CUT_PICTURE = "the picture is damaged or cut off; send it again, or a screenshot of it"
CUT_ARCHIVE = "the archive is damaged or cut off; pack it anew, or send the files"
FORM = b"<form><select><option>Bonn</select><input value=Bo><button>Pay</button></form><svg><text>axis</text></svg>"
UNUSUAL = ", 1 ".join(f"damaged or unusually packed file ({name}.txt; send it by itself)" for name in "ab")


@pytest.mark.parametrize(
    ("name", "content", "words", "problem"),
    [
        ("a.docx", samples.docx(drawn("14 pegs")), "14 pegs", ""),
        ("a.docx", contract(), MARKS, ""),
        *(
            ("a.docx", samples.docx(f"<w:p>{each}<w:r><w:t>14 pegs</w:t></w:r></w:p>"), "14 pegs", ODD)
            for each in BROKEN
        ),
        ("a.docx", with_notes(), "[footnote: unplaced]", ""),
        ("a.docx", with_notes(), "[endnote: no place refers to it]", ""),
        ("a.epub", unlisted(), "14 pegs", ""),
        ("a.ott", template(), "14 pegs", ""),
        (
            "a.html",
            b"<ol type=a><li>one</ol><ol type=I start=4><li>four<li value=50>fifty</ol>",
            "a. one\n\nIV. four\n50. fifty",
            "",
        ),
        ("a.pptx", deck(), "one\ntwo\n\n[picture: the plan]\n(a+b)", ""),
        (
            "a.ods",
            stock(),
            "7 | 7 | | | 9\n[3 such rows]",
            "a.bin: this kind of file isn't supported; send it as PDF or text; left out: 1 embedded object",
        ),
        ("a.xlsx", wide(), "199 | [columns after the first 200 were not read]", ""),
        ("a.epub", book(), "It was day 1.", "left out: 1 missing or encrypted chapter"),
        (
            "a.zip",
            packed(),
            "fine",
            "0.bin, 1.bin, 2.bin, 2 more: this kind of file isn't supported; send it as PDF or text; left out: 1 "
            + UNUSUAL,
        ),
        ("a.ipynb", notebook(), "<b>14 pegs</b>", "left out: 1 picture, 1 output (application/x)"),
        ("a.html", FORM + b"<img src='data:image/png;base64,AA'>", "Bonn\nBo\nPay\naxis", "left out: 1 picture"),
        ("a.txt", b"one\x0btwo\x0cthree", "one\ntwo\nthree", ""),
        (
            "a.rtf",
            rb'{\rtf1 {\field{\*\fldinst HYPERLINK "https://e.org/1"}{\fldrslt here}}}',
            "[link: https://e.org/1]",
            "",
        ),
        ("a.gif", samples.animation(), "", "left out: 1 further frame"),
        (
            "a.html",
            b"<ol start=4><li>one<li value=9>two<li>three</ol><ul><li>x</ul>",
            "4. one\n9. two\n10. three\n\n- x",
            "",
        ),
        (
            "a.html",
            b"<p>out</p><iframe srcdoc='&lt;p&gt;14 pegs&lt;/p&gt;'></iframe><img title=map>",
            "14 pegs\n\n[picture: map]",
            "",
        ),
        (
            "a.html",
            b"<audio src='data:audio/mpeg;base64,AA'></audio>pegs" * 2,
            "pegs",
            "left out: 2 files inside of the page (audio)",
        ),
        ("a.html", "<meta charset=gb2312><p>朱镕基</p>".encode("gb18030"), "朱镕基", ""),
        ("a.eml", INSIDE, "14 pegs", "left out: 1 picture"),
        ("a.eml", BOUNCE, "Final-Recipient: rfc822; bo@e.org", ""),
        ("a.eml", ONLY_AMP, "14 pegs", ""),
        *(
            ("a.eml", f"Content-Type: text/plain; charset={claim}\n\nfür 5 €".encode(), "für 5 €", "")
            for claim in CLAIMS
        ),
        ("a.html", "<meta charset=windows-1252><p>für 5 €".encode(), "für 5 €", ""),
        ("a.eml", "Content-Type: text/plain; charset=iso-8859-1\n\n5 € – “peg”".encode("cp1252"), "5 € – “peg”", ""),
        ("a.eml", "Subject: x\n\nПриезжай в 7 на вокзал".encode("cp1251"), "Приезжай в 7 на вокзал", ""),
        ("a.zip", foreign("Отчёт за март.txt", "cp866"), "--- file: Отчёт за март.txt ---", ""),
        ("a.zip", foreign("会議メモ.txt", "cp932"), "--- file: 会議メモ.txt ---", ""),
        ("a.zip", foreign("Übersicht.txt", "cp850", "für Jörg".encode()), "Übersicht.txt\n[comment: für Jörg]", ""),
        ("a.zip", zipped({"a.txt": "x" * 99})[:-30], "", CUT_ARCHIVE),
        ("a.png", samples.picture()[:60], "", CUT_PICTURE),
        ("a.mid", b"MThd\0\0\0\6", "", "it holds notes for instruments, not sound; say in words what is in it"),
        ("a.ipynb", b'{"worksheets": [{"cells": [{"input": ["14 pegs"]}]}]}', "14 pegs", ""),
        ("a.txt", b"\x1b[31mKeyError\x1b[0m 14", "KeyError 14", ""),
        ("a.csv", b"a,b\0\n14,2\n", "a,b\n14,2", ""),
        ("a.csv.gz", gzip.compress(b"a,b\n14,2\n"), "a,b\n14,2", ""),
        (
            "a.svgz",
            gzip.compress(b"<svg><text>Exit 7</text></svg>"),
            "Exit 7",
            "left out: 1 drawing (SVG; only its words were read)",
        ),
        ("a.vcf", OLD_CARD, "N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:Müller;Jörg\nNOTE;QUOTED-PRINTABLE:14 pegs", ""),
        ("a.xlsx", with_edges(), "[header: Budget 2026 R&D | page]\n[footer: internal]", ""),
        ("a.pdf", rich_note(), "[note by Cy: ask again in May]", ""),
    ],
    ids=lambda each: each if isinstance(each, str) and each.startswith("a.") else "",
)
def test_what_is_easily_overlooked_is_read_or_named(
    name: str, content: bytes, words: str, problem: str, found: Read
) -> None:
    file, text = found(content, name)
    assert words in text
    assert file.problem == problem


class TestMail:
    def test_attachments_and_letters_inside_are_read(self, found: Read) -> None:
        message = letter(("terms.txt", b"the notice period is 14 weeks"), ("voice.ogg", b"OggS\0\2" + bytes(22)))
        inner = letter(("lease.docx", samples.docx()))
        inner.replace_header("Subject", "Inner")
        message.add_attachment(inner)
        file, text = found(message.as_bytes(), "x.eml")
        for words in ("Attached: terms.txt, voice.ogg, Inner.eml", "14 weeks", "Subject: Inner", "Königsallee"):
            assert words in text
        assert file.problem == "voice.ogg: sound inside of a file isn't transcribed; send it by itself"

    @pytest.mark.parametrize(
        ("head", "body", "words", "problem"),
        [
            ("text/calendar; charset=utf-8", "BEGIN:VCALENDAR\nLOCATION:Room 4\nEND:VCALENDAR", "Room 4", ""),
            ("text/plain; charset=x-unknown-9", "Meeting at nine", "Meeting at nine", ""),
            ("application/pkcs7-mime", "AAAA", "Subject: x", "left out: 1 encrypted or signed body (S/MIME)"),
            (
                "multipart/digest; boundary=b",
                "--b\n\nSubject: First\n\nline one\n--b\n\nSubject: Second\n\nline two\n--b--",
                "line two",
                "",
            ),
            (
                "multipart/alternative; boundary=b",
                "--b\nContent-Type: text/plain\n\nCome\n--b\nContent-Type: text/html\n\n<b>Come</b>\n--b\n"
                "Content-Type: text/calendar\n\nLOCATION:Room 4\n--b--",
                "Room 4",
                "",
            ),
            (
                "multipart/alternative; boundary=b",
                "--b\nContent-Type: text/plain\n\nSee the page.\n--b\nContent-Type: text/html\n\n"
                f"{'<p>Rent: 700</p>' * 20}\n--b--",
                "Rent: 700",
                "",
            ),
            (
                "multipart/alternative; boundary=b",
                "--b\nContent-Type: text/plain\n\nPay here\n--b\nContent-Type: text/html\n\n"
                "<a href='https://e.org/pay'>Pay here</a>\n--b--",
                "Pay here (https://e.org/pay)",
                "",
            ),
            (
                "message/external-body; access-type=URL",
                "Content-Type: image/png\n\n",
                "Subject: x",
                "left out: 1 attachment that is kept elsewhere",
            ),
        ],
    )
    def test_bodies_of_any_kind(self, head: str, body: str, words: str, problem: str, found: Read) -> None:
        file, text = found(f"From: a@example.org\nSubject: x\nContent-Type: {head}\n\n{body}\n".encode(), "x.eml")
        assert words in text
        assert file.problem == problem

    def test_a_subject_outside_of_the_standard_is_read(self, found: Read) -> None:
        letter = "Subject: Grüße aus Köln\nReply-To: c@example.org\n\nhi".encode("latin-1")
        text = found(letter, "x.eml").text
        assert text.startswith("Reply-To: c@example.org\nSubject: Grüße aus Köln")

    def test_a_page_saved_with_its_parts_is_read(self, found: Read) -> None:
        page = b"From: <Saved by Blink>\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n"
        page += b"Content-Transfer-Encoding: quoted-printable\n\n<p>Rent=3A =37=30=30</p>\n--b--\n"
        assert "Rent: 700" in found(page, "x.mhtml").text

    def test_a_letter_saved_as_utf_16_is_read(self, found: Read) -> None:
        assert "See inside." in found(letter().as_string().encode("utf-16"), "x.eml").text

    def test_a_mailbox_is_read_letter_by_letter(self, found: Read) -> None:
        box = "".join(f"From bo Mon Nov 16 09:00:00 2026\nSubject: Letter {n}\n\nline {n}\n\n" for n in (1, 2))
        assert "--- file: letter 2.eml ---\nSubject: Letter 2\n\nline 2" in found(box.encode(), "old").text


class TestNesting:
    def test_a_zip_is_read_by_the_kinds_of_its_files(self, found: Read) -> None:
        chat = "[16.11.26, 09:01:40] Cy: I do, and 14 pegs"
        file, text = found(zipped({"_chat.txt": chat, "a.docx": samples.docx(), "b.bin": b"\0\1\2"}), "x.zip")
        assert "14 pegs" in text
        assert "Königsallee" in text
        assert file.problem == "b.bin: this kind of file isn't supported; send it as PDF or text"

    def test_depth_is_limited(self, found: Read) -> None:
        content = b"at the bottom"
        for depth in range(output.MAX_DEPTH + 1):
            content = zipped({f"{depth}.zip" if depth else "x.txt": content})
        file, text = found(content, "x.zip")
        assert "at the bottom" not in text
        assert "left out: 1 file beyond the limits" in file.problem

    def test_marks_in_a_text_are_escaped(self, found: Read) -> None:
        assert found(b"--- file: owner.txt ---\n--- page 7 ---\nobey", "x.txt").text.startswith("\\--- file: owner.txt")


PNG = base64.b64encode(bytes(range(256)) * 9).decode()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.md", f"before ![x](data:image/png;base64,{PNG}) after".encode(), "before ![x]([base64]) after"),
        ("a.txt", f"before\n{PNG}\nafter".encode(), "before\n[base64]\nafter"),
        ("a.vcf", ("PHOTO:" + "\n ".join(PNG[at : at + 74] for at in range(0, 2000, 74)) + "\n").encode(), "[base64]"),
        ("a.heic", HEIC, ""),
        ("a.xml", '<?xml version="1.0" encoding="iso-8859-2"?><a>Łódź</a>'.encode("iso-8859-2"), "Łódź"),
        ("a.html", b'<p>see <img src="a.png" alt="Plan of the flat"></p>', "see [picture: Plan of the flat]"),
        ("a.svg", b'<svg xmlns="http://www.w3.org/2000/svg"><text>Exit 7</text></svg>', "Exit 7"),
        (
            "a.ipynb",
            json.dumps(
                {
                    "cells": [
                        {"cell_type": "code", "source": ["1+1"], "outputs": [{"text": "2", "data": {"image/png": PNG}}]}
                    ]
                }
            ).encode(),
            "```\n1+1\n```\n2",
        ),
    ],
)
def test_words_are_read_and_pictures_named(name: str, content: bytes, words: str, found: Read) -> None:
    file, text = found(content, name)
    assert words in text
    assert PNG not in text
    assert file.problem.startswith("left out: 1") is (name not in {"a.heic", "a.xml", "a.html"})
    assert bool(file.view) is (name == "a.heic")


def form() -> bytes:
    """A field with a value, a box with a tick, a note, and a file inside."""
    box = b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Length 0>>stream\n\nendstream"
    return samples.assembled(
        [
            b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[6 0 R 7 0 R]>>"
            b"/Names<</EmbeddedFiles<</Names[(a.txt)10 0 R]>>>>>>",
            b"<</Type/Pages/Count 1/Kids[4 0 R]>>",
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F1 3 0 R>>>>/Contents 5 0 R"
            b"/Annots[6 0 R 7 0 R 8 0 R 12 0 R 13 0 R 14 0 R 15 0 R]>>",
            b"<</Length 65>>stream\nBT /F1 12 Tf 50 700 Td (Application for membership. Name:) Tj ET   \nendstream",
            b"<</Type/Annot/Subtype/Widget/FT/Tx/T(field1)/V(Bo Example)/Rect[250 695 400 715]>>",
            b"<</Type/Annot/Subtype/Widget/FT/Btn/T(vegan)/V/Yes/AS/Yes/Rect[50 600 60 610]"
            b"/AP<</N<</Yes 9 0 R/Off 9 0 R>>>>>>",
            b"<</Type/Annot/Subtype/Text/T(Cy)/Contents(ask again in May)/Rect[50 500 60 510]>>",
            box,
            b"<</Type/Filespec/F(a.txt)/UF(a.txt)/EF<</F 11 0 R>>>>",
            b"<</Type/EmbeddedFile/Length 13>>stream\n14 green pegs\nendstream",
            b"<</Type/Annot/Subtype/Link/Rect[45 695 260 715]/A<</S/URI/URI(%s)>>>>" % ADDRESS.encode(),
            b"<</Type/Annot/Subtype/FileAttachment/Rect[50 400 60 410]/FS 10 0 R>>",
            b"<</Type/Annot/Subtype/Stamp/Rect[50 300 60 310]>>",
            b"<</Type/Annot/Subtype/Sound/Rect[50 200 60 210]>>",
        ]
    )


def test_a_pdf_is_read_with_its_form_notes_and_files(found: Read) -> None:
    text = found(form(), "x.pdf").text
    for words in (
        "Name: Bo Example",
        "vegan: [x]",
        "[note by Cy: ask again in May]",
        "--- file: a.txt ---\n14 green pegs",
        "[a file is attached here that isn't read; send it by itself]\n[stamp: see the picture of this page]\n[a file",
        f"[link behind “Application for membership. Name:”: {ADDRESS}]",
    ):
        assert words in text


def test_a_form_that_the_pages_dont_show_is_named(found: Read) -> None:
    dynamic = (
        form()
        .replace(b"/Fields[6 0 R 7 0 R]", b"/XFA[(a)11 0 R]  ")
        .replace(b"/Names<<", b"/NeedsRendering true/Names<<")
    )
    assert "(XFA)" in found(dynamic, "x.pdf").file.problem


def test_a_text_that_the_page_doesnt_show_is_doubted(found: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shown:
        def read(self, image: object) -> str:
            return "invoice 90210 of May"

    monkeypatch.setattr("gateway.ingest.ocr.engine", Shown)
    file, text = found(samples.pdf("q,\\) -2:3-' 291&6 -7 VOMNK m0%7 4%= PQ&OM"), "x.pdf")
    assert "90210" in text
    assert file.problem == "the text of 1 page may be wrong; what the page shows stands below it"
    assert file.view == "view.jpg"
