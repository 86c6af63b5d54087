import ctypes
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from PIL import Image

from gateway.ingest import ocr
from gateway.ingest.ocr import Rapid, Tesseract
from tests.ingest.pictures import ENGLISH, Picture, error_rate, pictures, written


@pytest.fixture(scope="module")
def engine() -> Rapid:
    return Rapid()


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """The engine of an earlier test is not found again."""
    ocr.engine.cache_clear()
    yield
    ocr.engine.cache_clear()


@pytest.mark.parametrize("picture", [each for each in pictures() if "180" not in each.name], ids=lambda each: each.name)
def test_what_a_picture_says_is_read_with_its_accents(picture: Picture, engine: Rapid) -> None:
    assert error_rate(engine.read(picture.image), picture.text) < 0.02


def test_no_model_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = Mock()
    monkeypatch.setattr("rapidocr.utils.download_file.DownloadFile.run", fetched)
    assert Rapid().read(written(ENGLISH[:1], 24)) == ENGLISH[0]
    fetched.assert_not_called()


def test_an_empty_picture_says_nothing(engine: Rapid) -> None:
    assert engine.read(Image.new("RGB", (300, 200), "white")) == ""


class FakeLibrary:
    """The functions of libtesseract that are called; says what each mode is to say."""

    def __init__(self, languages: tuple[bytes, ...], said: dict[int, tuple[str, int]]) -> None:
        self.languages, self.mode, self.deleted = languages, 0, 0
        self.started: list[bytes] = []
        self.images: list[tuple[int, int]] = []
        vector = (ctypes.c_char_p * (len(languages) + 1))(*languages, None)
        self._texts = [ctypes.create_string_buffer(text.encode()) for text, _ in said.values()]

        self.TessBaseAPICreate = lambda: 1
        self.TessBaseAPIDelete = self._delete
        self.TessBaseAPIInit3 = self._start
        self.TessBaseAPIGetAvailableLanguagesAsVector = lambda _: vector
        self.TessBaseAPISetPageSegMode = self._set_mode
        self.TessBaseAPISetImage = self._set_image
        self.TessBaseAPIGetUTF8Text = lambda _: ctypes.addressof(self._texts[list(said).index(self.mode)])
        self.TessBaseAPIMeanTextConf = lambda _: said[self.mode][1]
        self.TessBaseAPISetVariable = self.TessBaseAPISetSourceResolution = lambda *_: 1
        self.TessDeleteText = self.TessDeleteTextArray = lambda _: None

    def _delete(self, _handle: object) -> None:
        self.deleted += 1

    def _start(self, _handle: object, _path: None, language: bytes) -> int:
        self.started.append(language)
        return 0 if set(language.split(b"+")) <= set(self.languages) else -1

    def _set_mode(self, _handle: object, mode: int) -> None:
        self.mode = mode

    def _set_image(self, _handle: object, data: bytes, width: int, height: int, depth: int, line: int) -> None:
        assert (len(data), depth, line) == (width * height, 1, width)
        self.images.append((width, height))


PICTURE = Image.new("RGB", (30, 20))
COLUMNS = "Tea\nMilk\nBread\n\n2.50\n1.20\n3.10\n"


class TestTesseract:
    def test_it_reads_with_every_language_there_is(self) -> None:
        library = FakeLibrary((b"osd", b"eng", b"deu"), {1: ("Grüße aus dem schönen Köln am Rhein", 95)})
        assert Tesseract(library).read(PICTURE) == "Grüße aus dem schönen Köln am Rhein"
        assert library.started[-1] == b"deu+eng"
        assert library.images == [(30, 20)]

    @pytest.mark.parametrize(("sure", "read"), [(93, "Tea 2.50\n"), (40, COLUMNS)])
    def test_a_table_is_read_line_by_line_if_that_makes_sense(self, sure: int, read: str) -> None:
        library = FakeLibrary((b"osd", b"eng"), {1: (COLUMNS, 92), 4: ("Tea 2.50\n", sure)})
        assert Tesseract(library).read(PICTURE) == read

    def test_without_a_language_there_is_none(self) -> None:
        library = FakeLibrary((), {})
        with pytest.raises(ValueError, match="no language"):
            Tesseract(library)
        assert library.deleted == 1

    def test_its_memory_is_given_back(self) -> None:
        library = FakeLibrary((b"eng",), {})
        engine = Tesseract(library)
        del engine
        assert library.deleted == 1


def test_where_there_is_no_library_what_came_along_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "_LIBRARIES", ("libtesseract-of-nobody.so",))
    assert isinstance(ocr.engine(), ocr.Rapid)


def test_the_library_of_the_system_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary((b"eng",), {})
    monkeypatch.setattr(ocr.ctypes, "CDLL", lambda _name: library)
    assert isinstance(ocr.engine(), Tesseract)
