"""The time zone that a messenger tells of: offered once, used by a command."""

from collections.abc import AsyncIterator

import pytest

from gateway.domain.principals import Label
from gateway.store.people import principals
from tests.fakes.channel import FakeChannel
from tests.flow.path import MEMBER, STRANGER, MessagePath, message

OFFER = "I don't know your time zone. Fake says Europe/Berlin; /zone Europe/Berlin uses it for your times."


@pytest.fixture
async def working(path: MessagePath) -> AsyncIterator[FakeChannel]:
    path.workspace.joinpath("USER.md").write_text("- Time zone:\n", encoding="utf-8")
    async with path.working():
        yield path.channel


async def hear(path: MessagePath, text: str, zone: str = "Europe/Berlin", **more: object) -> None:
    """Through the gate, and until it is answered."""
    inbound = message(text, **{"zone": zone, **more})
    await path.gate.receive([inbound])
    if inbound.private and inbound.sender.id != STRANGER:
        [accepted] = await path.inbound.accept([inbound])
        await path.answer(accepted)


async def offers(path: MessagePath) -> list[str]:
    rows = await path.rows("select text from messages where kind = 'notice' and text like '%time zone%' order by id")
    return [text for (text,) in rows]


async def test_it_is_offered_once_and_the_command_uses_it(path: MessagePath, working: FakeChannel) -> None:
    await hear(path, "hello")
    await hear(path, "hello again")
    await working.until(lambda texts: OFFER in texts)

    assert await offers(path) == [OFFER]
    assert await path.ask("/zone Europe/Berlin") == "Your times are in Europe/Berlin now."
    assert path.workspace.joinpath("USER.md").read_text() == "- Time zone: Europe/Berlin\n"
    assert await path.ask("/zone Asia/Tokyo") == "Your times are in Asia/Tokyo now."
    assert path.environments.of(path.people.owner.id).zone() == "Asia/Tokyo"


async def test_a_member_is_offered_their_own(path: MessagePath, working: FakeChannel) -> None:
    await hear(path, "hello", sender=MEMBER, chat=MEMBER)
    assert await offers(path) == [OFFER]
    answer = await path.ask("/zone Europe/Berlin", sender=MEMBER, chat=MEMBER)
    assert answer == "Your times are in Europe/Berlin now."

    async with path.database.connection() as conn:
        member = await principals.find(conn, f"fake:{MEMBER}")
    assert member is not None
    environment = path.environments.of(member)
    page = await environment.workspace.page("USER.md")
    assert page is not None
    assert (environment.zone(), page.label) == ("Europe/Berlin", Label.KNOWN)
    assert path.environments.of(path.people.owner.id).zone() is None


@pytest.mark.parametrize(
    ("zone", "more"),
    [
        ("", {}),
        ("Mars/Olympus", {}),
        ("Europe/Berlin\n/new", {}),
        ("Europe/Berlin", {"private": False, "chat": "group"}),
        ("Europe/Berlin", {"sender": STRANGER, "chat": STRANGER}),
    ],
)
async def test_nothing_is_offered_of_it(
    path: MessagePath, working: FakeChannel, zone: str, more: dict[str, object]
) -> None:
    await hear(path, "hello", zone, **more)
    assert await offers(path) == []


async def test_who_has_a_zone_is_not_asked(path: MessagePath, working: FakeChannel) -> None:
    path.workspace.joinpath("USER.md").write_text("- Time zone: Asia/Tokyo\n", encoding="utf-8")
    await hear(path, "hello")
    assert await offers(path) == []


async def test_what_is_not_a_zone_is_refused(path: MessagePath, working: FakeChannel) -> None:
    assert await path.ask("/zone Berlin") == '"Berlin" is not an IANA time zone; did you mean Europe/Berlin?'
    assert "Write /zone and your time zone" in await path.ask("/zone")
    assert path.workspace.joinpath("USER.md").read_text() == "- Time zone:\n"


async def test_what_a_group_notes_stays_untrusted(path: MessagePath, working: FakeChannel) -> None:
    await path.ask("/zone Europe/Berlin", private=False, chat="group")
    assert path.workspace.joinpath("USER.md").read_text() == "- Time zone:\n"
    async with path.database.connection() as conn:
        group = await principals.find(conn, "fake:group:group")
        found = await conn.fetch("select id, name from principals where role = 'member'")
    group = group or found[0]["id"]
    page = await path.environments.of(group).workspace.page("USER.md")
    assert page is not None
    assert page.label is Label.UNTRUSTED
