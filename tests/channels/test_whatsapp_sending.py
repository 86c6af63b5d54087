"""Messages and files out, and files in."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.whatsapp.channel import WhatsApp
from gateway.domain.channels.channel import (
    FetchDelayed,
    FetchFailed,
    Outgoing,
    OutgoingFile,
    SendDelayed,
    SendFailed,
    SendUncertain,
)
from gateway.domain.conversation.inbound import Address, Attachment
from tests.contract.under_test import Gateway
from tests.contract.whatsapp import linked, receiving
from tests.fakes.whatsapp import FakeWhatsApp

ADA = Address("whatsapp", "4915550001", "4917")
GROUP = Address("whatsapp", "4915550001", "1203@g.us")


@pytest.fixture
def people() -> FakeWhatsApp:
    return FakeWhatsApp()


@pytest.fixture
async def channel(people: FakeWhatsApp, tmp_path: Path) -> AsyncIterator[WhatsApp]:
    with people:
        async with linked(tmp_path) as channel:
            yield channel


def file(tmp_path: Path, name: str, mime: str, data: bytes = b"data") -> OutgoingFile:
    (tmp_path / name).write_bytes(data)
    return OutgoingFile(str(tmp_path / name), name, mime, len(data))


# --- text ---


async def test_people_and_groups_and_hidden_people_are_written_to(channel: WhatsApp, people: FakeWhatsApp) -> None:
    for chat in ("4917", "1203@g.us", "777@lid"):
        await channel.send(Outgoing(Address("whatsapp", "4915550001", chat), "hello", chat))
    assert [sent.chat for sent in people.sent] == ["4917@s.whatsapp.net", "1203@g.us", "777@lid"]


async def test_an_answer_in_a_group_quotes_what_it_answers(channel: WhatsApp, people: FakeWhatsApp) -> None:
    gateway = Gateway()
    async with receiving(channel, gateway):
        people.say("how late is it?", "1203", sender="4917", group=True, stanza="A")
        (asked,) = await gateway.received(1)
        await channel.send(Outgoing(GROUP, "noon", "k", private=False, reply_to=asked.platform_id))
    context = people.sent[0].message.extendedTextMessage.contextInfo
    assert (context.stanzaID, context.participant) == ("A", "4917@s.whatsapp.net")
    assert context.quotedMessage.conversation == "how late is it?"


async def test_a_file_in_a_group_quotes_what_it_answers(
    channel: WhatsApp, people: FakeWhatsApp, tmp_path: Path
) -> None:
    plan = file(tmp_path, "a.pdf", "application/pdf")
    await channel.send(Outgoing(GROUP, "", "k", private=False, reply_to="A/4917@s.whatsapp.net", file=plan))
    assert people.sent[0].message.documentMessage.contextInfo.stanzaID == "A"


async def test_only_the_latest_messages_can_be_quoted(
    channel: WhatsApp, people: FakeWhatsApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.whatsapp.channel.MAX_QUOTES", 1)
    gateway = Gateway()
    async with receiving(channel, gateway):
        people.say("first", "1203", sender="4917", group=True)
        people.say("second", "1203", sender="4917", group=True)
        for asked in await gateway.received(2):
            await channel.send(Outgoing(GROUP, "yes", asked.text, private=False, reply_to=asked.platform_id))
    quoted = [sent.message.extendedTextMessage.contextInfo.quotedMessage.conversation for sent in people.sent]
    assert quoted == ["", "second"]


async def test_a_private_answer_quotes_nothing(channel: WhatsApp, people: FakeWhatsApp) -> None:
    await channel.send(Outgoing(ADA, "noon", "k", reply_to="A"))
    assert not people.sent[0].message.extendedTextMessage.HasField("contextInfo")


async def test_typing_is_shown(channel: WhatsApp, people: FakeWhatsApp) -> None:
    await channel.typing(ADA)
    assert people.composing == ["4917"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("websocket not connected", SendDelayed),
        ("the store doesn't contain a device JID", SendDelayed),
        ("failed to get device list: info query timed out", SendDelayed),
        *((f"server returned error {code}", SendDelayed) for code in (401, 408, 420, 429, 463, 479, 500, 503)),
        ("info query returned status 429: rate-overlimit", SendDelayed),
        *((f"server returned error {code}", SendFailed) for code in (400, 404, 406, 410)),
        ("can't send message to unknown server: x", SendFailed),
        ("server returned error 403", SendFailed),
        ("no LID found for 4917@s.whatsapp.net from server", SendFailed),
        ("failed to get group members: you're not participating in that group", SendFailed),
        ("timed out waiting for message send response", SendUncertain),
        ("failed to send message node: broken pipe", SendUncertain),
        ("something new", SendUncertain),
    ],
)
async def test_what_go_says_decides_whether_it_is_sent_again(
    channel: WhatsApp, people: FakeWhatsApp, error: str, outcome: type[Exception]
) -> None:
    people.fail(error)
    with pytest.raises(outcome, match=r"^[^\n]+$"):
        await channel.send(Outgoing(ADA, "hello", "k"))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("**bold** *it* ~~no~~ `code`", "*bold* _it_ ~no~ `code`"),
        ("# Title\n\ntext", "*Title*\n\ntext"),
        ("- a\n- b\n  1. c", "- a\n- b\n  1. c"),
        ("[here](https://x.org) <https://y.org>", "here (https://x.org) https://y.org"),
        ("![pic](https://x.org/p.png)", "pic (https://x.org/p.png)"),
        ("```py\nprint(1)\n```", "```\nprint(1)\n```"),
        ("> said\n> so", "> said\n> so"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```\na | b\n1 | 2\n```"),
        ("one\n\n---\n\ntwo", "one\n\n———\n\ntwo"),
        ("**two\nlines**", "two\nlines"),
    ],
)
async def test_markdown_becomes_what_whatsapp_shows(
    channel: WhatsApp, people: FakeWhatsApp, written: str, shown: str
) -> None:
    await channel.send(Outgoing(ADA, written, "k"))
    assert people.sent[0].text == shown


@pytest.mark.parametrize(
    "text", ["[a]: /" + "x" * 400 + "\n\n" + "[a]" * 200, "> " * 5000 + "deep", "*" * 5000 + "x" + "*" * 5000]
)
async def test_what_cannot_be_rendered_is_shown_as_it_is(channel: WhatsApp, people: FakeWhatsApp, text: str) -> None:
    await channel.send(Outgoing(ADA, text, "k"))
    assert people.sent[0].text == text


# --- files ---


@pytest.mark.parametrize(
    ("name", "mime", "kind"),
    [
        ("a.jpg", "image/jpeg", "imageMessage"),
        ("a.mp4", "video/mp4", "videoMessage"),
        ("a.svg", "image/svg+xml", "documentMessage"),
        ("a.pdf", "application/pdf", "documentMessage"),
    ],
)
async def test_a_file_is_shown_as_what_it_is(
    channel: WhatsApp, people: FakeWhatsApp, tmp_path: Path, name: str, mime: str, kind: str
) -> None:
    await channel.send(Outgoing(ADA, "the *plan*", "k", file=file(tmp_path, name, mime)))
    shown = getattr(people.sent[0].message, kind)
    assert (shown.caption, shown.mimetype, shown.fileLength) == ("the _plan_", mime, 4)
    assert people.files[shown.mediaKey] == b"data"


async def test_audio_is_played_unless_there_is_something_to_read(
    channel: WhatsApp, people: FakeWhatsApp, tmp_path: Path
) -> None:
    sound = file(tmp_path, "a.mp3", "audio/mpeg")
    await channel.send(Outgoing(ADA, "", "1", file=sound))
    await channel.send(Outgoing(ADA, "listen", "2", file=sound))
    first, second = (sent.message for sent in people.sent)
    assert first.HasField("audioMessage")
    assert second.documentMessage.caption == "listen"
    assert first.audioMessage.mediaKey != second.documentMessage.mediaKey


async def test_opus_is_a_voice_message_with_its_length(channel: WhatsApp, people: FakeWhatsApp, tmp_path: Path) -> None:
    page = b"OggS\0\4" + (7 * 48_000).to_bytes(8, "little") + bytes(14)
    sound = OutgoingFile(str(tmp_path / "a.ogg"), "a.ogg", "audio/ogg", 56)
    for codec in (b"OpusHead", b"\x01vorbis\0"):
        (tmp_path / "a.ogg").write_bytes(b"OggS" + bytes(24) + codec + page)
        await channel.send(Outgoing(ADA, "", "1", file=sound))
    note = people.sent[0].message.audioMessage
    assert (note.PTT, note.seconds, note.mimetype) == (True, 7, "audio/ogg; codecs=opus")
    assert people.sent[1].message.documentMessage.fileName == "a.ogg"


async def test_an_upload_that_fails_has_shown_nothing(channel: WhatsApp, people: FakeWhatsApp, tmp_path: Path) -> None:
    people.fail("anything at all")
    with pytest.raises(SendDelayed):
        await channel.send(Outgoing(ADA, "", "k", file=file(tmp_path, "a.pdf", "application/pdf")))
    assert people.sent == []


async def received_file(channel: WhatsApp, people: FakeWhatsApp, data: bytes) -> Attachment:
    gateway = Gateway()
    async with receiving(channel, gateway):
        people.say(content=people.document(data, "a.bin", "application/octet-stream"))
        (inbound,) = await gateway.received(1)
    return inbound.attachments[0]


async def test_a_file_is_fetched_in_pieces(channel: WhatsApp, people: FakeWhatsApp) -> None:
    data = bytes(range(256)) * 3000
    attachment = await received_file(channel, people, data)
    pieces = [piece async for piece in channel.fetch(attachment)]
    assert len(pieces) > 1
    assert b"".join(pieces) == data


@pytest.mark.parametrize(
    ("url", "path", "asked"),
    [
        ("https://mmg.whatsapp.net/f", "/f", ("https://mmg.whatsapp.net/f", "/f")),
        ("http://169.254.169.254/latest/", "/f", ("", "/f")),
        ("https://mmg.whatsapp.net.evil.example/f", "@evil.example/f", ("", "")),
        ("https://mmg.whatsapp.net@127.0.0.1/f", ".evil.example/f", ("", "")),
    ],
)
async def test_a_file_is_asked_of_whatsapp_alone_whatever_its_sender_wrote(
    channel: WhatsApp, people: FakeWhatsApp, url: str, path: str, asked: tuple[str, str]
) -> None:
    message = people.document(b"data", "a.bin", "application/octet-stream")
    message.documentMessage.URL, message.documentMessage.directPath = url, path
    attachment = Attachment(b64encode(message.SerializeToString()).decode())

    assert b"".join([piece async for piece in channel.fetch(attachment)]) == b"data"

    assert people.downloaded == [asked]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("failed to download media from last host: download failed with status code 404", FetchFailed),
        ("invalid media hmac", FetchFailed),
        ("failed to refresh media connections: info query timed out", FetchDelayed),
    ],
)
async def test_what_go_says_decides_whether_it_is_fetched_again(
    channel: WhatsApp, people: FakeWhatsApp, error: str, outcome: type[Exception]
) -> None:
    attachment = await received_file(channel, people, b"data")
    people.fail(error)
    with pytest.raises(outcome):
        await anext(channel.fetch(attachment))


@pytest.mark.parametrize(
    "attachment", [Attachment("not base64!"), Attachment("/////w=="), Attachment("", size=65 * 2**20)]
)
async def test_what_is_no_file_of_whatsapp_fails(channel: WhatsApp, attachment: Attachment) -> None:
    with pytest.raises(FetchFailed):
        await anext(channel.fetch(attachment))


async def test_a_hidden_person_is_known_by_a_number_learnt_before(channel: WhatsApp, people: FakeWhatsApp) -> None:
    people.numbers["777000"] = "4917"
    gateway = Gateway()
    async with receiving(channel, gateway):
        people.say("hello", "777000", server="lid")
        people.say("hello", "888000", server="lid")
        known, unknown = await gateway.received(2)
    assert (known.sender.id, known.address.chat) == ("4917", "4917")
    assert unknown.sender.id == "888000@lid"
