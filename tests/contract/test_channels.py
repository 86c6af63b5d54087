"""Every messenger passes this suite; a new one adds its adapter to `CHANNELS`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.channel import (
    Button,
    FetchDelayed,
    FetchFailed,
    Outgoing,
    OutgoingFile,
    SendDelayed,
    SendFailed,
    SendUncertain,
)
from gateway.domain.inbound import Address, Inbound
from gateway.domain.splitting import split, utf16_len
from tests.contract.slack import slack
from tests.contract.telegram import telegram
from tests.contract.under_test import ChannelUnderTest, Gateway
from tests.contract.whatsapp import whatsapp

CHANNELS = {"slack": slack, "telegram": telegram, "whatsapp": whatsapp}

HOSTILE = [
    "a < b && c > d",
    "<b>not <i>closed",
    "*one _two* three_ `four",
    "[text](javascript:alert(1)) ![x](y) <tg://x>",
    "# \n\n> \n\n| a |\n|---|\n",
    "*" * 3000,
    "```\nnever closed",
    "&lt; &#0; &nbsp; \\* 🙂",
    "***",
    "> " * 1000 + "deep",
    "- " * 1000 + "deep",
    "[a](" * 700,
    "| a | b |\n" * 150,
    "\u202eright to left \u200bzero \ufeffwidth \u2028lines",
    "<@U1> <!channel> @everyone #general :smile: /new",
    "e" + "\u0301" * 1000,
]

KINDS = [
    ("report.pdf", "application/pdf", b"%PDF-1.4 " + bytes(range(256)) * 40),
    ("picture.png", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8),
    ("voice.ogg", "audio/ogg", b"OggS" + bytes(range(256)) * 8),
    ("notes.txt", "text/plain", "Grüße 🙂\n".encode() * 100),
    ("large.bin", "application/octet-stream", bytes(range(256)) * 12_000),
    ("no extension", "application/octet-stream", b"\0" * 1000),
]
HOSTILE_NAMES = [
    "../../etc/passwd",
    "a\"b<c>&d;e'f.txt",
    "\u202egnp.exe",
    "new\nline\tand tab.txt",
    "x" * 250 + ".txt",
    "~$%(){}[]|*?.txt",
]


@pytest.fixture(params=list(CHANNELS.values()), ids=list(CHANNELS))
async def platform(request: pytest.FixtureRequest) -> AsyncIterator[ChannelUnderTest]:
    async with request.param() as under_test:
        yield under_test


@pytest.fixture
async def gateway(platform: ChannelUnderTest) -> AsyncIterator[Gateway]:
    gateway = Gateway()
    async with receiving(platform, gateway):
        yield gateway


@asynccontextmanager
async def receiving(platform: ChannelUnderTest, gateway: Gateway) -> AsyncIterator[None]:
    task = asyncio.create_task(platform.channel.receive(gateway.accept))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def answer(platform: ChannelUnderTest, text: str) -> Outgoing:
    return Outgoing(platform.nowhere(), text, key="k")


async def test_messages_arrive_in_the_order_they_were_written(platform: ChannelUnderTest, gateway: Gateway) -> None:
    texts = [f"number {number}" for number in range(30)]
    for text in texts:
        platform.says(text)
    assert [inbound.text for inbound in await gateway.received(30)] == texts


async def test_a_message_tells_where_when_and_from_whom(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello", chat=77, sender=77)
    (inbound,) = await gateway.received(1)
    assert inbound.address == platform.nowhere()
    assert (inbound.sender.id, inbound.sender.is_bot) == ("77", False)
    assert inbound.private
    assert inbound.addressed
    assert inbound.edits is None
    assert inbound.sent_at.utcoffset() is not None


async def test_someone_nobody_knows_is_told_apart_by_id(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("let me in", chat=666, sender=666)
    (inbound,) = await gateway.received(1)
    assert (inbound.address.chat, inbound.sender.id) == ("666", "666")


async def test_nothing_is_acknowledged_before_it_is_accepted(platform: ChannelUnderTest, gateway: Gateway) -> None:
    gateway.open.clear()
    platform.says("keep me")
    await gateway.attempted(1)
    assert platform.unacknowledged() == 1
    gateway.open.set()
    await gateway.received(1)
    await platform.all_acknowledged()


async def test_what_was_not_accepted_comes_again_as_the_same_message(
    platform: ChannelUnderTest, gateway: Gateway
) -> None:
    gateway.failures_left = 2
    platform.says("keep me")
    await gateway.received(1)
    assert len(gateway.attempts) == 3
    assert len({(inbound.address, inbound.platform_id) for inbound in gateway.attempts}) == 1


async def test_one_message_delivered_fifty_times_is_the_same_each_time(
    platform: ChannelUnderTest, gateway: Gateway
) -> None:
    gateway.failures_left = 49
    platform.says("keep me")
    await gateway.received(1)
    assert len(gateway.attempts) == 50
    assert len({(inbound.address, inbound.platform_id) for inbound in gateway.attempts}) == 1
    await platform.all_acknowledged()


async def test_different_messages_have_different_ids(platform: ChannelUnderTest, gateway: Gateway) -> None:
    for _ in range(3):
        platform.says("again")
    assert len({inbound.platform_id for inbound in await gateway.received(3)}) == 3


async def test_an_edit_names_the_message_it_changes(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("helo")
    platform.edits("hello")
    original, edit = await gateway.received(2)
    assert edit.edits == original.platform_id != edit.platform_id
    assert edit.text == "hello"


async def test_bots_are_flagged(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("beep", sender=5, bot=True)
    (inbound,) = await gateway.received(1)
    assert inbound.sender.is_bot


@pytest.mark.parametrize("to_us", [True, False])
async def test_group_talk_is_ours_only_when_it_is_meant_for_us(
    platform: ChannelUnderTest, gateway: Gateway, to_us: bool
) -> None:
    platform.says_in_group("what do you think?", to_us=to_us)
    (inbound,) = await gateway.received(1)
    assert not inbound.private
    assert inbound.addressed is to_us


async def test_a_message_of_a_megabyte_arrives_whole(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("x" * 1_000_000)
    (inbound,) = await gateway.received(1)
    assert len(inbound.text) == 1_000_000


@pytest.mark.parametrize(
    "text",
    ["a\x00b", "half a pair \ud83d", "\u202ertl \u200b\ufeff", "@somebody *b* _i_ https://x.test " * 3000, "\n" * 5000],
    ids=["NUL", "surrogate", "invisible", "entities", "lines"],
)
async def test_an_odd_text_holds_up_nothing(platform: ChannelUnderTest, gateway: Gateway, text: str) -> None:
    """Whether it arrives is for the platform to say: some cannot carry it at all."""
    platform.says("before")
    with suppress(UnicodeError):
        platform.says(text)
    platform.says("after")
    async with asyncio.timeout(10):
        while [inbound.text for inbound in gateway.accepted][-1:] != ["after"]:
            await gateway.received(len(gateway.accepted) + 1)
    assert gateway.accepted[0].text == "before"
    await platform.all_acknowledged()


async def test_what_cannot_be_read_blocks_nothing(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("before")
    platform.sends_garbage()
    platform.says("after")
    assert [inbound.text for inbound in await gateway.received(2)] == ["before", "after"]
    await platform.all_acknowledged()


async def test_a_backlog_is_delivered_in_order(platform: ChannelUnderTest) -> None:
    for number in range(5):
        platform.says(str(number))
    gateway = Gateway()
    async with receiving(platform, gateway):
        assert [inbound.text for inbound in await gateway.received(5)] == ["0", "1", "2", "3", "4"]


async def test_the_channel_comes_back_after_the_platform_was_away(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("before")
    await gateway.received(1)
    await platform.all_acknowledged()
    await platform.goes_down()
    platform.says("meanwhile")
    await platform.comes_back()
    platform.says("after")
    assert [inbound.text for inbound in await gateway.received(3)] == ["before", "meanwhile", "after"]


async def test_an_answer_goes_where_the_message_came_from(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello")
    (inbound,) = await gateway.received(1)
    first = await platform.channel.send(Outgoing(inbound.address, "one", "1"))
    second = await platform.channel.send(Outgoing(inbound.address, "two", "2"))
    assert await platform.shown(2) == ["one", "two"]
    assert first != second


@pytest.mark.parametrize("text", HOSTILE)
async def test_whatever_a_model_writes_is_shown(platform: ChannelUnderTest, text: str) -> None:
    await platform.channel.send(answer(platform, text))
    assert len(await platform.shown(1)) == 1


async def test_the_parts_of_a_long_answer_are_short_enough(platform: ChannelUnderTest) -> None:
    text = "Some words, 🙂.\n" * 500 + "```py\n" + "print('<&>')\n" * 500 + "```\n" + "🙂" * 5000
    limit = platform.channel.capabilities.max_text
    parts = split(text, limit)
    for part in parts:
        await platform.channel.send(answer(platform, part))
    shown = await platform.shown(len(parts))
    assert all(utf16_len(part) <= limit for part in shown)
    assert sum(part.count("🙂") for part in shown) == 5500


async def test_a_refused_answer_has_failed(platform: ChannelUnderTest) -> None:
    platform.refuses_next_send()
    with pytest.raises(SendFailed, match=r"^[^\n]+$"):
        await platform.channel.send(answer(platform, "hello"))


async def test_an_answer_may_be_delayed_for_as_long_as_the_platform_says(platform: ChannelUnderTest) -> None:
    platform.delays_next_send(7)
    with pytest.raises(SendDelayed) as delayed:
        await platform.channel.send(answer(platform, "hello"))
    assert delayed.value.retry_after >= 7
    await platform.channel.send(answer(platform, "hello"))
    assert await platform.shown(1) == ["hello"]


async def test_an_answer_whose_receipt_is_lost_is_uncertain_and_not_repeated(platform: ChannelUnderTest) -> None:
    platform.loses_next_answer()
    with pytest.raises(SendUncertain):
        await platform.channel.send(answer(platform, "once"))
    assert await platform.shown(1) == ["once"]


async def test_an_answer_that_never_left_is_only_delayed(platform: ChannelUnderTest) -> None:
    await platform.goes_down()
    with pytest.raises(SendDelayed):
        await platform.channel.send(answer(platform, "hello"))
    await platform.comes_back()
    await platform.channel.send(answer(platform, "hello"))
    assert await platform.shown(1) == ["hello"]


async def test_a_doubtful_answer_is_shown_once_where_it_can_be_repeated(platform: ChannelUnderTest) -> None:
    if not platform.channel.capabilities.idempotent_send:
        pytest.skip("a send that may have happened is not repeated there")
    platform.loses_next_answer()
    with pytest.raises(SendUncertain):
        await platform.channel.send(answer(platform, "once"))
    again = replace(answer(platform, "once"), again=True)
    assert await platform.channel.send(again)
    assert await platform.shown(1) == ["once"]


async def test_a_repeated_answer_that_never_arrived_is_shown(platform: ChannelUnderTest) -> None:
    await platform.goes_down()
    with pytest.raises(SendDelayed):
        await platform.channel.send(answer(platform, "once"))
    await platform.comes_back()
    await platform.channel.send(replace(answer(platform, "once"), again=True))
    assert await platform.shown(1) == ["once"]


async def test_an_answer_that_grew_in_a_draft_is_seen_once(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello")
    (inbound,) = await gateway.received(1)
    address = _drafted(platform, inbound)
    for text in ("O", "One", "One answer"):
        await platform.channel.draft(address, 7, text)
    await platform.channel.send(Outgoing(address, "One answer.", "k"))
    assert await platform.shown(1) == ["One answer."]


def _drafted(platform: ChannelUnderTest, inbound: Inbound) -> Address:
    capabilities, address = platform.channel.capabilities, inbound.address
    for each in (address, replace(address, thread=inbound.platform_id)):
        if capabilities.drafts_at(each, private=inbound.private):
            return each
    pytest.skip("there are no drafts there")


async def test_reactions_never_raise(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello")
    (inbound,) = await gateway.received(1)
    for seen in (True, True, False, False):
        await platform.channel.react(inbound.address, inbound.platform_id, seen=seen)
    await platform.channel.react(inbound.address, "no such message", seen=True)
    await platform.goes_down()
    await platform.channel.react(inbound.address, inbound.platform_id, seen=True)
    await platform.comes_back()
    assert await platform.shown(0) == []


async def fetched(platform: ChannelUnderTest, inbound: Inbound) -> bytes:
    (attachment,) = inbound.attachments
    return b"".join([piece async for piece in platform.channel.fetch(attachment)])


@pytest.mark.parametrize(("name", "mime", "data"), KINDS, ids=[name for name, *_ in KINDS])
async def test_a_file_of_any_kind_arrives_byte_for_byte(
    platform: ChannelUnderTest, gateway: Gateway, name: str, mime: str, data: bytes
) -> None:
    platform.sends_file(data, name, mime, "Look at this.")
    (inbound,) = await gateway.received(1)
    assert (inbound.text, inbound.address) == ("Look at this.", platform.nowhere())
    (attachment,) = inbound.attachments
    assert (attachment.name, attachment.mime) == (name, mime)
    assert attachment.size in {None, len(data)}
    assert len(attachment.ref.encode()) <= 16_384
    assert await fetched(platform, inbound) == data
    assert await fetched(platform, inbound) == data, "a file can be fetched again"


async def test_a_file_needs_no_words_and_keeps_its_place(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("before")
    platform.sends_file(b"data", "a.bin", "application/octet-stream")
    platform.says("after")
    received = await gateway.received(3)
    assert [(inbound.text, len(inbound.attachments)) for inbound in received] == [("before", 0), ("", 1), ("after", 0)]


async def test_an_empty_file_is_empty_or_explained(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.sends_file(b"", "empty.txt", "text/plain", "Nothing.")
    platform.says("after")
    received = await gateway.received(2)
    assert [inbound.text for inbound in received] == ["Nothing.", "after"]
    with suppress(FetchFailed):
        assert await fetched(platform, received[0]) == b""


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_hostile_name_is_only_a_name(platform: ChannelUnderTest, gateway: Gateway, name: str) -> None:
    platform.sends_file(b"data", name, "text/plain", "Look.")
    (inbound,) = await gateway.received(1)
    assert inbound.text == "Look."
    assert await fetched(platform, inbound) == b"data"


async def test_a_lost_file_is_explained_in_one_line(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.sends_file(b"data", "a.bin", "application/octet-stream", "Look.")
    (inbound,) = await gateway.received(1)
    platform.loses_files()
    with pytest.raises(FetchFailed, match=r"^[^\n]+$"):
        await fetched(platform, inbound)


async def test_a_file_waits_for_the_platform_to_come_back(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.sends_file(b"data", "a.bin", "application/octet-stream", "Look.")
    (inbound,) = await gateway.received(1)
    await platform.goes_down()
    with pytest.raises(FetchDelayed):
        await fetched(platform, inbound)
    await platform.comes_back()
    assert await fetched(platform, inbound) == b"data"


def enclosed(platform: ChannelUnderTest, folder: Path, name: str, mime: str, data: bytes) -> Outgoing:
    if len(data) > platform.channel.capabilities.max_file:
        pytest.skip("such files cannot be sent there")
    (folder / name).write_bytes(data)
    file = OutgoingFile(str(folder / name), name, mime, len(data))
    return replace(answer(platform, "Here it is."), file=file)


@pytest.mark.parametrize(("name", "mime", "data"), KINDS, ids=[name for name, *_ in KINDS])
async def test_a_file_of_any_kind_is_shown_byte_for_byte_with_its_caption(
    platform: ChannelUnderTest, tmp_path: Path, name: str, mime: str, data: bytes
) -> None:
    assert await platform.channel.send(enclosed(platform, tmp_path, name, mime, data))
    [(shown, received)] = await platform.files(1)
    assert received == data
    assert shown in {"", name}, "some platforms show pictures without a name"
    assert "Here it is." in await platform.shown(1)


async def test_a_file_is_shown_without_words_too(platform: ChannelUnderTest, tmp_path: Path) -> None:
    message = enclosed(platform, tmp_path, 'odd "name" & more;.txt', "text/plain", b"data")
    await platform.channel.send(replace(message, text=""))
    assert [data for _, data in await platform.files(1)] == [b"data"]


async def test_a_file_that_never_left_is_only_delayed(platform: ChannelUnderTest, tmp_path: Path) -> None:
    message = enclosed(platform, tmp_path, "a.txt", "text/plain", b"data")
    await platform.goes_down()
    with pytest.raises(SendDelayed):
        await platform.channel.send(message)
    await platform.comes_back()
    await platform.channel.send(replace(message, again=True))
    assert await platform.files(1) == [("a.txt", b"data")]


async def test_a_file_that_is_gone_is_refused_in_one_line(platform: ChannelUnderTest, tmp_path: Path) -> None:
    message = enclosed(platform, tmp_path, "a.txt", "text/plain", b"data")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(SendFailed, match=r"^[^\n]+$"):
        await platform.channel.send(message)
    assert await platform.shown(0) == []


async def test_a_button_says_its_value_for_whoever_presses_it(platform: ChannelUnderTest, gateway: Gateway) -> None:
    if not platform.channel.capabilities.buttons:
        pytest.skip("there are no buttons there")
    choices = (Button("Yes, do it", "/yes A17"), Button("No", "/no " + "x" * 60))
    await platform.channel.send(replace(answer(platform, "Really?"), buttons=choices))
    assert await platform.buttons(2) == ["Yes, do it", "No"]
    assert await platform.shown(1) == ["Really?"]
    platform.presses("/yes A17")
    (pressed,) = await gateway.received(1)
    assert (pressed.text, pressed.address, pressed.sender.id) == ("/yes A17", platform.nowhere(), "77")
    assert (pressed.private, pressed.addressed, pressed.edits) == (True, True, None)
    await platform.all_acknowledged()


async def test_a_press_that_was_not_accepted_comes_again_as_the_same(
    platform: ChannelUnderTest, gateway: Gateway
) -> None:
    if not platform.channel.capabilities.buttons:
        pytest.skip("there are no buttons there")
    await platform.channel.send(replace(answer(platform, "Really?"), buttons=(Button("Yes", "/yes"),)))
    await platform.buttons(1)
    gateway.failures_left = 2
    platform.presses("/yes")
    await gateway.received(1)
    assert len({inbound.platform_id for inbound in gateway.attempts}) == 1


async def test_where_there_are_no_buttons_the_text_says_everything(platform: ChannelUnderTest) -> None:
    await platform.channel.send(replace(answer(platform, "Really? /yes or /no"), buttons=(Button("Yes", "/yes"),)))
    assert await platform.shown(1) == ["Really? /yes or /no"]


async def test_typing_and_drafts_never_raise(platform: ChannelUnderTest) -> None:
    await platform.goes_down()
    await platform.channel.typing(platform.nowhere())
    await platform.channel.draft(platform.nowhere(), 1, "so far")
    await platform.channel.typing(replace(platform.nowhere(), chat="0"))
    await platform.comes_back()
    await platform.channel.draft(platform.nowhere(), 1, "so far")
    assert await platform.shown(0) == []
