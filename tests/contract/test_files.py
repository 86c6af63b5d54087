"""Files arrive and are shown byte for byte, whatever they are called."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.channels.channel import FetchDelayed, FetchFailed, Outgoing, OutgoingFile, SendDelayed, SendFailed
from gateway.domain.conversation.inbound import Inbound
from tests.contract.under_test import ChannelUnderTest, Gateway, answer

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
