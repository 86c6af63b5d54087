from datetime import UTC, datetime
from uuid import uuid4

import pytest

from gateway.domain.ids import EntryId
from gateway.flow.journal.copies import transcribe
from gateway.store.transcript.journals import JournalLine, Kind
from gateway.workspace.journal.entries import JournalEntry


def entry(kind: Kind, text: str, who: str = "", length: int | None = None) -> JournalEntry:
    at = datetime.now(UTC)
    line = JournalLine(1, False, EntryId(uuid4()), kind, at, who, text, len(text) if length is None else length)
    [only] = transcribe([line])
    assert (only.id, only.kind, only.at, only.inbound) == (line.entry_id, kind, at, None)
    return only


@pytest.mark.parametrize(
    ("kind", "who", "shown"),
    [
        ("user", "", "User"),
        ("user", "Grace", "Grace"),
        ("command", "", "User"),
        ("edit", "", "User"),
        ("assistant", "", "SupaClaw"),
        ("summary", "", "Summary"),
        ("notice", "", "Gateway"),
        ("tool_intent", "look", "Tool call: look"),
        ("tool_result", "look", "Tool result: look"),
    ],
)
def test_everybody_has_a_name(kind: Kind, who: str, shown: str) -> None:
    assert entry(kind, "x", who).who == shown


def test_what_people_and_the_agent_say_stays_as_it_is() -> None:
    text = "**a**\r\n```\nb"
    assert entry("user", text).text == entry("assistant", text).text == text


def test_a_fence_is_longer_than_any_in_the_call() -> None:
    assert entry("tool_result", "a ```` b").text == "`````json\na ```` b\n`````"


def test_what_was_cut_is_said() -> None:
    assert entry("tool_intent", "{}", length=1502).text == (
        "```json\n{}\n```\n\n[… 1,500 more characters; the database has the whole]"
    )
