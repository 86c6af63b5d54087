from dataclasses import replace

import pytest

from gateway.domain.conversation.inbound import Attachment, Earlier
from gateway.workspace.journal.entry import entry_of
from tests.workspace.journal.entries import arrival, said


@pytest.mark.parametrize(
    ("text", "edits", "kind"), [("hello", None, "message"), ("/new", None, "command"), ("/hello", "m0", "edit")]
)
def test_it_says_what_arrived(text: str, edits: str | None, kind: str) -> None:
    assert entry_of(arrival(text, edits=edits)).kind == kind


def test_what_can_be_stored_comes_back_as_it_arrived() -> None:
    whole = arrival("a\r\nb", edits="m0", private=False, addressed=False, solo=True, earlier=(Earlier("user", "x"),))
    whole = replace(
        whole, inbound=replace(whole.inbound, attachments=(Attachment("r", "a", "b", 3),), album="al", quoted="q")
    )
    assert entry_of(whole).arrival == whole


def test_what_no_database_takes_is_made_fit_to_be_kept() -> None:
    entry = entry_of(arrival("a\x00b\ud800", name="\udfffAda", id="m\x001"))
    assert (entry.text, entry.who) == ("ab?", "?Ada")
    assert entry.inbound is not None
    assert (entry.inbound.text, entry.inbound.sender.name, entry.inbound.platform_id) == ("ab?", "?Ada", "m1")


def test_a_copy_of_a_row_never_arrives() -> None:
    assert said().arrival is None


def test_the_names_of_its_files_are_told_and_what_no_database_takes_is_not() -> None:
    entry = entry_of(arrival("look", attachments=(Attachment("r\x00", "a\x00.pdf"), Attachment("s"))))
    assert entry.files == ("a.pdf", "file")
    assert entry.inbound is not None
    assert entry.inbound.attachments == (Attachment("r", "a.pdf"), Attachment("s"))
