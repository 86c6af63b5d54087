from uuid import uuid4

import pytest

from gateway.domain.conversation.transcript import Attached
from gateway.domain.ids import FileId, MessageId
from gateway.domain.text.texts import size_text
from gateway.web.live.entries import chip


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


def test_a_file_says_how_it_stands():
    assert chip(attached()).remark == "5 B"
    assert chip(attached(problem="it has not been read yet")).remark == "5 B · it has not been read yet"
    gone = chip(attached(state="failed", id=None, size=0, problem="the platform does not have it any more"))
    assert (gone.failed, gone.id, gone.remark) == (True, None, "the platform does not have it any more")


def test_a_picture_shows_itself_and_not_that_it_has_no_text():
    seen = chip(attached(mime="image/png", view_path="a.jpg", problem="no text was found in it"))
    assert (seen.picture, seen.icon, seen.remark) == (True, "image", "5 B")
    assert not chip(attached(mime="image/png")).picture
    assert not chip(attached(view_path="page-1.jpg")).picture
