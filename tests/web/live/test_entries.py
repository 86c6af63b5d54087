from uuid import uuid4

import pytest

from gateway.domain.conversation.transcript import Attached
from gateway.domain.ids import FileId, MessageId
from gateway.domain.text.texts import size_text
from gateway.web.pages import Pages


def attached(**more: object) -> Attached:
    plain: dict[str, object] = {"state": "stored", "name": "a.pdf", "mime": "application/pdf", "size": 5}
    return Attached(MessageId(1), 0, **{**plain, "id": FileId(uuid4()), **more})


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9949, "9.9 kB"),
        (9950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (209_715_200, "210 MB"),
        (999_500_000, "1.0 GB"),
        (2_500_000_000_000, "2500 GB"),
    ],
)
def test_sizes_are_for_people(size: int, words: str):
    assert size_text(size) == words


def shown(**more: object) -> str:
    return str(Pages().part("files", [attached(**more)]))


def test_a_file_says_how_it_stands():
    assert "<small>5 B</small>" in shown()
    assert "<small>5 B · it has not been read yet</small>" in shown(problem="it has not been read yet")
    gone = shown(state="failed", id=None, size=0, problem="the platform does not have it any more")
    assert 'class="file failed"' in gone
    assert "<small>the platform does not have it any more</small>" in gone
    assert "download" not in gone


def test_a_picture_shows_itself_and_not_that_it_has_no_text():
    seen = shown(mime="image/png", view_path="a.jpg", problem="no text was found in it")
    assert "<img" in seen
    assert "#image" in seen
    assert "<small>5 B</small>" in seen
    assert "<img" not in shown(mime="image/png")
    assert "<img" not in shown(view_path="page-1.jpg")
