from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.telegram.channel import Telegram
from gateway.domain.channels.channel import (
    Button,
    FetchDelayed,
    FetchFailed,
    Outgoing,
    OutgoingFile,
    SendUncertain,
)
from gateway.domain.conversation.inbound import Address, Attachment
from tests.contract.telegram import telegram_on
from tests.fakes.log import Log
from tests.fakes.telegram import MAX_DOWNLOAD, FakeTelegram

ADA = Address("telegram", "424242", "77")


@pytest.fixture
async def platform() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as platform:
        yield platform


@pytest.fixture
async def channel(platform: FakeTelegram) -> AsyncIterator[Telegram]:
    channel = telegram_on(platform, Log())
    await channel.open()
    yield channel
    await channel.close()


def told_of(platform: FakeTelegram, data: bytes) -> Attachment:
    return Attachment(platform.keep(data)["file_id"], "notes.txt")


async def fetched(channel: Telegram, attachment: Attachment) -> bytes:
    return b"".join([piece async for piece in channel.fetch(attachment)])


# --- in ---


async def test_a_file_comes_in_pieces(platform: FakeTelegram, channel: Telegram) -> None:
    data = bytes(range(256)) * 8000
    pieces = [piece async for piece in channel.fetch(told_of(platform, data))]
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) < 1_000_000


async def test_a_file_larger_than_telegram_hands_out_says_so(platform: FakeTelegram, channel: Telegram) -> None:
    with pytest.raises(FetchFailed, match=r"^notes\.txt is larger than 20 MB[^\n]*$"):
        await fetched(channel, told_of(platform, b"x" * (MAX_DOWNLOAD + 1)))


async def test_no_more_is_read_than_any_file_may_have(
    platform: FakeTelegram, channel: Telegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fakes.telegram.MAX_DOWNLOAD", 2 * MAX_DOWNLOAD)
    with pytest.raises(FetchFailed, match="larger than 20 MB"):
        await fetched(channel, told_of(platform, b"x" * (MAX_DOWNLOAD + 1)))


async def test_a_file_that_is_gone_cannot_be_fetched(platform: FakeTelegram, channel: Telegram) -> None:
    attachment = told_of(platform, b"x")
    platform.fault("file", 404, "Not Found")
    with pytest.raises(FetchFailed, match=r"^Telegram no longer provides notes\.txt[^\n]*$"):
        await fetched(channel, attachment)
    platform.lose_files()
    with pytest.raises(FetchFailed, match="send it again"):
        await fetched(channel, attachment)


async def test_files_on_the_disk_of_a_local_server_are_explained(platform: FakeTelegram, channel: Telegram) -> None:
    file = {"file_id": "f", "file_unique_id": "u", "file_path": "/var/lib/telegram/f.bin"}
    platform.fault("getFile", 200, file)
    with pytest.raises(FetchFailed, match="--local"):
        await fetched(channel, Attachment("f"))


@pytest.mark.parametrize(
    ("method", "code", "description"),
    [
        ("getFile", 429, "Too Many Requests"),
        ("getFile", 401, "Unauthorized"),
        ("getFile", 500, "Internal Server Error"),
        ("getFile", 200, "no file at all"),
        ("getFile", 409, "Conflict"),
        ("file", 502, "Bad Gateway"),
        ("file", 429, "Too Many Requests"),
        ("file", 408, "Request Timeout"),
    ],
)
async def test_what_may_work_later_is_delayed(
    platform: FakeTelegram, channel: Telegram, method: str, code: int, description: str
) -> None:
    attachment = told_of(platform, b"x")
    platform.fault(method, code, description, **({"retry_after": 3} if code == 429 else {}))
    with pytest.raises(FetchDelayed, match=r"^[^\n]+$"):
        await fetched(channel, attachment)
    assert await fetched(channel, attachment) == b"x"


async def test_a_file_cut_off_in_the_middle_is_delayed_and_tells_no_token(
    platform: FakeTelegram, channel: Telegram
) -> None:
    attachment = told_of(platform, b"x" * 1_000_000)
    platform.drop_response("file")
    with pytest.raises(FetchDelayed) as caught:
        await fetched(channel, attachment)
    assert platform.token not in f"{caught.value!r} {caught.value.__cause__!r}"
    await platform.stop()
    with pytest.raises(FetchDelayed) as caught:
        await fetched(channel, attachment)
    assert platform.token not in f"{caught.value!r} {caught.value.__cause__!r}"


# --- out ---


@pytest.fixture
def file(tmp_path: Path) -> OutgoingFile:
    path = tmp_path / "stored"
    path.write_bytes(b"some bytes")
    return OutgoingFile(str(path), "notes.txt", "text/plain", 10)


def as_mime(file: OutgoingFile, mime: str) -> OutgoingFile:
    return OutgoingFile(file.path, file.name, mime, file.size)


@pytest.mark.parametrize(
    ("mime", "method"),
    [
        ("image/jpeg", "sendphoto"),
        ("image/gif", "senddocument"),
        ("audio/ogg; codecs=opus", "sendvoice"),
        ("audio/mpeg", "sendaudio"),
        ("audio/wav", "senddocument"),
        ("video/mp4", "sendvideo"),
        ("", "senddocument"),
    ],
)
async def test_a_file_is_shown_as_what_it_is(
    platform: FakeTelegram, channel: Telegram, file: OutgoingFile, mime: str, method: str
) -> None:
    address = Address("telegram", "424242", "-5", "9")
    message = Outgoing(address, "**see**", "k", private=False, file=as_mime(file, mime), buttons=(Button("OK", "ok"),))
    sent_id = await channel.send(message)
    (sent,) = platform.sent
    assert sent.file is not None
    assert (sent.method, sent.text, sent.thread, sent_id) == (method, "see", 9, str(sent.message_id))
    assert (sent.file.name, sent.file.data) == ("notes.txt", b"some bytes")
    assert platform.keyboards == {sent.message_id: [("OK", "ok")]}


async def test_a_picture_too_large_for_a_photo_goes_as_a_document(
    platform: FakeTelegram, channel: Telegram, tmp_path: Path
) -> None:
    path = tmp_path / "big.png"
    path.write_bytes(b"x" * 10_000_001)
    await channel.send(Outgoing(ADA, "", "k", file=OutgoingFile(str(path), "big.png", "image/png", 10_000_001)))
    assert [sent.method for sent in platform.sent] == ["senddocument"]


@pytest.mark.parametrize("why", ["PHOTO_INVALID_DIMENSIONS", "IMAGE_PROCESS_FAILED", "wrong type of the web page"])
async def test_a_picture_that_is_refused_goes_as_a_document(
    platform: FakeTelegram, channel: Telegram, file: OutgoingFile, why: str
) -> None:
    platform.fault("sendPhoto", 400, f"Bad Request: {why}")
    await channel.send(Outgoing(ADA, "see", "k", file=as_mime(file, "image/png")))
    assert [(sent.method, sent.text) for sent in platform.sent] == [("senddocument", "see")]


async def test_a_caption_is_shown_even_if_its_formatting_is_refused_or_becomes_too_long(
    platform: FakeTelegram, channel: Telegram, file: OutgoingFile
) -> None:
    platform.fault("sendDocument", 400, "Bad Request: can't parse entities: odd")
    wide = "|a|b|\n|-|-|\n" + f"|{'x' * 400}|y|\n|z|w|\n|z|w|"
    captions = ["**hi**", wide, ""]
    for caption in captions:
        await channel.send(Outgoing(ADA, caption, caption, file=file))
    assert [sent.text for sent in platform.sent] == captions
    assert {sent.method for sent in platform.sent} == {"senddocument"}


async def test_a_file_without_words_shows_what_it_answers(
    platform: FakeTelegram, channel: Telegram, file: OutgoingFile
) -> None:
    await channel.send(Outgoing(ADA, "", "k", file=file, reply_to="12"))
    assert [sent.reply_to for sent in platform.sent] == [12]


async def test_a_name_cannot_break_out_of_its_header(
    platform: FakeTelegram, channel: Telegram, file: OutgoingFile
) -> None:
    name = 'a"\r\nX-Evil: 1\\../ü.txt'
    await channel.send(Outgoing(ADA, "", "k", file=OutgoingFile(file.path, name, "", 10)))
    (sent,) = platform.sent
    assert sent.file is not None
    assert sent.file.name == "a_X-Evil: 1_.._ü.txt"


async def test_a_file_whose_receipt_is_lost_is_uncertain_and_sent_once(
    platform: FakeTelegram, channel: Telegram, file: OutgoingFile
) -> None:
    platform.drop_response("sendDocument")
    with pytest.raises(SendUncertain):
        await channel.send(Outgoing(ADA, "", "k", file=file))
    assert len(platform.sent) == 1
