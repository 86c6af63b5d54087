import codecs
import email.message
import gzip
import io
import json
import mimetypes
import random
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from gateway.background.cpu.executor import Cpu, CpuJobFailed
from gateway.ingest import ocr, output
from gateway.ingest.output import ExtractedFile
from gateway.ingest.reading import MAX_DESCRIPTION, read_file
from tests.ingest import samples
from tests.ingest.samples import Sample, zipped

SAMPLES = samples.samples()
BOMB = b"\0" * (output.MAX_UNPACKED_BYTES + 1)
CUT_ARCHIVE = "the archive is damaged or cut off; pack it anew, or send the files"
PACKED_TAR = "the file in it: this kind of archive isn't supported; send it as .zip"

Read = Callable[[bytes, str], ExtractedFile]


@pytest.fixture
def reading(tmp_path: Path) -> Read:
    """Reads bytes under a name; every file in the folder is checked against what is told."""

    def run(content: bytes, name: str = "file", mime: str = "") -> ExtractedFile:
        source, target = tmp_path / "source", tmp_path / "derived"
        source.write_bytes(content)
        if target.exists():
            for old in target.iterdir():
                old.unlink()
        target.mkdir(exist_ok=True)
        value = read_file(str(source), str(target), name, mime)
        derived = ExtractedFile.from_json(json.loads(json.dumps(value)))
        check(derived, target)
        return derived

    return run


def check(derived: ExtractedFile, target: Path) -> None:
    found = {path.name for path in target.iterdir()}
    assert {f"{number:03}.txt" for number in range(1, derived.pages + 1)} == {
        name for name in found if name.endswith(".txt") and name != "text.txt"
    }
    assert ("text.txt" in found) is bool(derived.text)
    assert ("view.jpg" in found) is bool(derived.view)
    assert derived.mime
    assert derived.description
    assert len(derived.description) <= MAX_DESCRIPTION
    assert not {"\n", "\r", "\0"} & set(derived.description + derived.problem)
    assert derived.text or derived.problem
    assert derived.characters <= output.MAX_TEXT_CHARACTERS
    assert sum(path.stat().st_size for path in target.glob("*.jpg")) <= output.PAGE_IMAGES * 1024**2


def text(tmp_path: Path) -> str:
    return (tmp_path / "derived" / "text.txt").read_text("utf-8")


class TestKinds:
    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
    def test_each_kind_is_known_and_its_words_are_found(self, sample: Sample, reading: Read, tmp_path: Path) -> None:
        derived = reading(sample.content, sample.name)
        assert derived.kind == sample.kind
        if sample.words:
            assert derived.problem == ""
            assert [word for word in sample.words if word not in text(tmp_path)] == []
        else:
            assert "transcription" in derived.problem

    def test_pages_are_told_apart(self, reading: Read, tmp_path: Path) -> None:
        derived = reading(samples.pdf("the first page of it", "the second page of it"), "x.pdf")
        assert derived.pages == 2
        assert text(tmp_path) == "--- page 1 ---\nthe first page of it\n\n--- page 2 ---\nthe second page of it\n"
        assert (tmp_path / "derived" / "002.txt").read_text() == "the second page of it"
        assert (tmp_path / "derived" / "002.jpg").exists()

    def test_only_what_cannot_be_read_as_text_has_a_view(self, reading: Read) -> None:
        assert reading(samples.pdf("a page with text on it"), "x.pdf").view == ""
        assert reading(samples.picture(), "x.png").view == "view.jpg"

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("letter.pdf", "PDF, 2 pages: Rental agreement for Müller"),
            ("data.csv", "3 lines: name;age"),
            ("voyage.epub", "book, 2 chapters: The Voyage, Ida Pfeiffer"),
            ("costs.xlsx", "spreadsheet: Costs (3 rows), Notes (1 rows)"),
            ("hours.html", "web page: Opening hours"),
            ("hello.eml", "e-mail from Ada <ada@example.org>: Grüße"),
        ],
    )
    def test_a_line_says_what_it_is(self, name: str, told: str, reading: Read) -> None:
        sample = next(sample for sample in SAMPLES if sample.name == name)
        assert reading(sample.content, name).description == told

    def test_the_bytes_are_believed_before_the_name(self, reading: Read) -> None:
        derived = reading(samples.pdf("a page with text on it"), "holiday.jpg", "image/jpeg")
        assert (derived.kind, derived.mime) == ("pdf", "application/pdf")

    def test_a_claimed_type_tells_texts_apart_when_the_name_does_not(self, reading: Read) -> None:
        assert reading(b"a,b\n1,2\n", "table", "text/csv").kind == "table"

    @pytest.mark.parametrize(
        ("raw", "meant"),
        [
            ("Köln €".encode("utf-8-sig"), "Köln €"),
            ("Köln €".encode("utf-16"), "Köln €"),
            (codecs.BOM_UTF16_BE + "Köln €".encode("utf-16-be"), "Köln €"),
            ("Köln €".encode("utf-32"), "Köln €"),
            ("Köln €".encode("cp1252"), "Köln €"),
            ("Köln €".encode()[:-1], "Köln"),
        ],
    )
    def test_text_in_any_encoding_is_read(self, raw: bytes, meant: str, reading: Read, tmp_path: Path) -> None:
        assert reading(raw, "note.txt").kind == "text"
        assert text(tmp_path).strip() == meant

    def test_a_page_of_a_scan_lies_beside_pages_with_text(self, reading: Read, tmp_path: Path) -> None:
        assert reading(samples.scan(), "scan.pdf").pages == 2
        assert "--- page 2 ---" in text(tmp_path)


CUT_OFF = "the picture is damaged or cut off; send it again, or a screenshot of it"


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "name", "problem"),
        [
            (b"", "empty.pdf", "the file is empty"),
            (samples.locked_pdf(), "x.pdf", output.LOCKED),
            (b"%PDF-1.7 and no more", "x.pdf", "the PDF is damaged; save or print it anew"),
            (b"\x89PNG\r\n\x1a\n and no more", "x.png", CUT_OFF),
            (b"\0\1\2\3", "x.bin", "this kind of file isn't supported; send it as PDF or text"),
            (b"7z\xbc\xaf\x27\x1c", "x.7z", "this kind of archive isn't supported; send it as .zip"),
            (b"\x04\x22M\x18\0\0", "x.lz4", "this kind of archive isn't supported; send it as .zip"),
            (b"PK\x07\x08PK\3\4\0\0", "x.z01", "this kind of archive isn't supported; send it as .zip"),
            (
                b"\x78\x9f\x3e\x22\0\0",
                "winmail.dat",
                "Outlook packed files into it; ask the sender for the letter as HTML or plain text",
            ),
            (
                b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
                "x.xls",
                "this old kind of file isn't supported; save it as .docx, .xlsx, .pptx or PDF",
            ),
            (b"\0\0\0\x18ftypheic", "x.heic", CUT_OFF),
            (b"<html></html>", "x.html", "no text was found in it"),
            (b"\x1f\x8bnothing", "x.tar.gz", CUT_ARCHIVE),
            (gzip.compress(bytes(257) + b"ustar", mtime=0), "x.tar.gz", PACKED_TAR),
            (gzip.compress(BOMB, 1), "x.gz", "left out: 1 file beyond the limits"),
        ],
    )
    def test_what_is_not_read_is_said(self, content: bytes, name: str, problem: str, reading: Read) -> None:
        assert reading(content, name).problem == problem

    def test_an_office_file_that_unpacks_to_too_much_is_not_opened(self, reading: Read) -> None:
        bomb = zipped({"[Content_Types].xml": "", "word/document.xml": BOMB})
        assert len(bomb) < 1024**2
        assert "more than is read" in reading(bomb, "x.docx").problem

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
    def test_entities_are_not_unfolded(self, encoding: str, reading: Read) -> None:
        laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><w:document>&b;</w:document>'.encode(encoding)
        bomb = zipped({"[Content_Types].xml": "", "word/document.xml": laughs})
        assert reading(bomb, "x.docx").problem == "the file declares XML entities, which no office program writes"

    def test_a_locked_zip_is_not_tried(self, reading: Read) -> None:
        locked = bytearray(samples.docx())
        locked[6] |= 1
        locked[locked.index(b"PK\1\2") + 8] |= 1
        assert reading(bytes(locked), "x.docx").problem == output.LOCKED

    @pytest.mark.parametrize("side", [9_000, 16_000])
    def test_a_picture_of_too_many_pixels_is_not_decoded(self, side: int, reading: Read) -> None:
        out = io.BytesIO()
        Image.new("1", (side, side)).save(out, "PNG")
        assert len(out.getvalue()) < 100_000
        assert "pixels" in reading(out.getvalue(), "x.png").problem


def letter(attached: bytes) -> bytes:
    message = email.message.EmailMessage()
    message.set_content("see below")
    message.add_attachment(attached, maintype="application", subtype="octet-stream", filename="a.docx")
    return message.as_bytes()


class TestPasswords:
    LONG = f"<w:p><w:r><w:t>{random.Random(1).randbytes(5_000).hex()}</w:t></w:r></w:p>"
    DOCX = samples.unlockable_office(samples.docx(LONG), "sésame 9")

    @pytest.mark.parametrize(
        ("content", "name", "words"),
        [
            (samples.unlockable_pdf("The code is 4711.", "s\xe9same 9".encode("cp1252")), "a.pdf", "The code is 4711."),
            (DOCX, "a.docx", "Königsallee"),
            (letter(DOCX), "a.eml", "Königsallee"),
            (samples.unlockable_zip("note.txt", b"The code is 4711.", "sésame 9".encode()), "a.zip", "4711"),
        ],
        ids=["pdf", "docx", "eml", "zip"],
    )
    def test_a_password_opens_a_file_and_those_inside_it(
        self, content: bytes, name: str, words: str, tmp_path: Path
    ) -> None:
        (tmp_path / "source").write_bytes(content)

        def read(password: str) -> tuple[ExtractedFile, str]:
            (target := tmp_path / f"read{len(password)}").mkdir()
            file = ExtractedFile.from_json(read_file(str(tmp_path / "source"), str(target), name, "", password))
            return file, (target / file.text).read_text() if file.text else ""

        (closed, nothing), (wrong, still), (opened, text) = read(""), read("sesame"), read("sésame 9")
        assert output.LOCKED in closed.problem
        assert output.WRONG_PASSWORD in wrong.problem
        assert words not in nothing + still
        assert words in text
        assert opened.problem == ""
        assert opened.mime == mimetypes.guess_type(name)[0]

    def test_an_encrypted_opendocument_file_says_what_to_do(self, reading: Read) -> None:
        manifest = "<manifest:manifest><manifest:encryption-data/></manifest:manifest>"
        locked = {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "META-INF/manifest.xml": manifest,
            "content.xml": b"\x91\x02",
        }
        assert "save a copy without it" in reading(zipped(locked), "a.odt").problem

    def test_a_zip_encrypted_with_aes_says_what_to_do(self, reading: Read) -> None:
        locked = bytearray(zipped({"a.txt": "x"}))
        for method in (8, locked.index(b"PK\1\2") + 10):
            locked[method] = 99
        assert "unpack it and send the files" in reading(bytes(locked), "a.zip").problem


class Broken:
    """An engine that fails as ONNX Runtime does; its last line is the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def read(self, image: object) -> str:
        raise RuntimeError(f"Traceback (most recent call last):\n  File x\n{self.reason}")


class TestRecognitionThatFails:
    @pytest.mark.parametrize(("content", "pages"), [(samples.picture(), 1), (samples.scan(), 2)], ids=["png", "pdf"])
    def test_the_reason_is_told_and_logged_and_the_pages_are_kept_as_pictures(
        self,
        content: bytes,
        pages: int,
        reading: Read,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(ocr, "engine", lambda: Broken("the model is damaged"))
        derived = reading(content, "scan")
        assert derived.problem == "text recognition failed: RuntimeError: the model is damaged"
        assert (derived.pages, derived.view) == (pages, "view.jpg")
        assert len(list((tmp_path / "derived").glob("0*.jpg"))) == pages
        assert [record.exc_text for record in caplog.records if record.message == "ocr.failed"] == [ANY] * pages

    @pytest.mark.parametrize("reason", ["std::bad_alloc", "x.so: failed to map segment", "Cannot allocate memory"])
    def test_too_little_memory_is_told_from_the_rest(
        self, reason: str, reading: Read, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ocr, "engine", lambda: Broken(reason))
        with pytest.raises(MemoryError):
            reading(samples.picture(), "x.png")


class TestBounds:
    def test_only_the_first_pages_of_a_pdf_are_read(self, reading: Read) -> None:
        derived = reading(samples.pdf(*["another page with text"] * 10_000), "x.pdf")
        assert derived.pages == output.MAX_PAGES
        assert derived.problem == "only the first 500 of 10,000 pages were read"
        assert derived.description == "PDF, 10,000 pages: another page with text"

    def test_only_so_much_text_is_kept(self, reading: Read, tmp_path: Path) -> None:
        derived = reading(b"word " * (output.MAX_TEXT_CHARACTERS // 4), "x.txt")
        assert derived.characters == output.MAX_TEXT_CHARACTERS
        assert derived.problem == "only the first 5 MB of text were kept"

    def test_an_archive_with_many_names_is_listed_in_part(self, reading: Read) -> None:
        derived = reading(zipped({str(number): "" for number in range(output.MAX_ENTRIES + 5)}), "x.zip")
        assert derived.problem == "only the first 10,000 names were listed"

    def test_deep_documents_are_no_danger(self, reading: Read) -> None:
        reading(b"[" * 500_000, "x.json")
        reading(b"<html>" + b"<div>" * 500_000 + b"deep", "x.html")

    def test_a_sheet_that_says_it_is_huge_is_read_for_what_it_has(self, reading: Read) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(samples.xlsx())) as old, zipfile.ZipFile(out, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(b'ref="A1:B3"', b'ref="A1:XFD1048576"'))
        assert reading(out.getvalue(), "x.xlsx").description == "spreadsheet: Costs (3 rows), Notes (1 rows)"

    def test_scans_beyond_the_time_for_them_are_kept_as_pictures(
        self, reading: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gateway.ingest.pdf.OCR_PAGES", 1)
        derived = reading(samples.scan(), "scan.pdf")
        assert derived.problem == "1 scanned pages after the first 1 were not recognised"
        assert (tmp_path / "derived" / "002.jpg").exists()

    def test_scans_beyond_the_room_for_pictures_are_missed_too(
        self, reading: Read, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gateway.ingest.pdf.OCR_PAGES", 1)
        monkeypatch.setattr("gateway.ingest.output.PAGE_IMAGES", 1)
        assert reading(samples.scan(), "scan.pdf").problem == "1 scanned pages after the first 1 were not recognised"

    def test_what_was_deleted_from_a_document_is_not_read(self, reading: Read, tmp_path: Path) -> None:
        reading(samples.opendocument("text", samples.ODT_TEXT), "x.odt")
        assert text(tmp_path) == "# Title\n\nBody ä\n"


class Silent:
    """Recognises nothing, at once."""

    def read(self, image: object) -> str:
        return ""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_damaged_files_are_told_as_such(sample: Sample, reading: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "engine", Silent)

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def damaged(data: st.DataObject) -> None:
        content = bytearray(sample.content[: data.draw(st.integers(0, len(sample.content)))])
        places = st.integers(0, max(0, len(content) - 1))
        for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=20)):
            content[place : place + 1] = bytes([byte])
        reading(bytes(content), sample.name)

    damaged()


@pytest.mark.parametrize("charset", ["idna", "punycode", "no-such-one", "utf-8"])
def test_a_saved_page_with_a_useless_charset_is_read_by_its_bytes(charset: str, reading: Read) -> None:
    body = f"<html><meta charset={charset}><body>Open at the café".encode()
    assert reading(body, "x.html").problem == ""


def test_nothing_is_fetched(reading: Read, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"http://127.0.0.1:{server.getsockname()[1]}"
        doctype = f'<!DOCTYPE x SYSTEM "{there}/x.dtd" [<!ENTITY y SYSTEM "file:///etc/hostname">]>'
        reading(f"<html>{doctype}<link rel=stylesheet href={there}><img src={there}/x>text</html>".encode(), "x.html")
        odt = "<office:text><text:p>text &y;</text:p></office:text>"
        content = samples.opendocument("text", odt, doctype)
        reading(content, "x.odt")
        assert text(tmp_path).strip() == "text &y;"
        picture = f'<Relationship Id="r9" Type="{samples.IMAGE}" TargetMode="External" Target="{there}/x.png"/>'
        derived = reading(samples.docx(samples.LINKED_PICTURE, picture), "x.docx")
        assert derived.problem == ""
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


class TestInTheCpuProcess:
    async def run(self, content: bytes, tmp_path: Path, cpu: Cpu) -> ExtractedFile:
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(content)
        target.mkdir(exist_ok=True)
        value = await cpu.run(
            read_file, str(source), str(target), "x", "", seconds=output.MAX_SECONDS, memory=output.MAX_MEMORY_BYTES
        )
        return ExtractedFile.from_json(value)

    async def test_a_scan_is_recognised_within_the_limits(self, tmp_path: Path) -> None:
        cpu = Cpu()
        try:
            derived = await self.run(samples.scan(), tmp_path, cpu)
        finally:
            await cpu.close()
        assert (derived.pages, derived.text, derived.view) == (2, "text.txt", "view.jpg")

    async def test_too_little_memory_ends_the_job_and_not_the_machine(self, tmp_path: Path) -> None:
        cpu = Cpu()
        source = tmp_path / "source"
        source.write_bytes(samples.scan())
        try:
            with pytest.raises(CpuJobFailed, match="memory"):
                await cpu.run(read_file, str(source), str(tmp_path), "x", "", seconds=60, memory=250 * 1024**2)
            assert (await self.run(b"still at work", tmp_path, cpu)).characters == 13
        finally:
            await cpu.close()


def test_what_is_not_the_result_of_reading_is_refused() -> None:
    with pytest.raises(ValueError, match="not the result of reading"):
        ExtractedFile.from_json({"kind": "poem"})
