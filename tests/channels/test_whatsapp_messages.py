"""What WhatsApp tells → what happened."""

from base64 import b64decode
from contextlib import nullcontext

import pytest

from channels.whatsapp.sdk import preload

with nullcontext():  # before anything else imports neonize
    preload()

from channels.whatsapp.messages import Together, to_inbound
from channels.whatsapp.store import LinkedAccount
from gateway.domain.conversation.inbound import Inbound
from tests.fakes.whatsapp import HIDDEN, FakeWhatsApp, Message, ProtocolMessage

US = LinkedAccount("4915550001", "900001", 7)
people = FakeWhatsApp()


def read(text: str = "hello", **said: object) -> Inbound:
    inbound = to_inbound(people.say(text, **said), US)
    assert inbound is not None
    return inbound


def ignored(**said: object) -> bool:
    return to_inbound(people.say("hello", **said), US) is None


def wrapped(message: Message, *wrappers: str) -> Message:
    for wrapper in wrappers:
        outer = Message()
        getattr(outer, wrapper).message.CopyFrom(message)
        message = outer
    return message


# --- who and where ---


def test_the_device_of_a_person_makes_no_difference() -> None:
    one, other = read(chat="4917", device=0), read(chat="4917", device=12)
    assert one.sender == other.sender
    assert one.address == other.address
    assert (one.sender.id, one.address.chat) == ("4917", "4917")


def test_a_hidden_person_is_known_by_the_number_that_comes_along() -> None:
    hidden = read(chat="777000", server=HIDDEN, other="4917")
    assert (hidden.sender.id, hidden.address.chat) == ("4917", "4917")


def test_a_person_without_a_number_is_still_somebody() -> None:
    hidden = read(chat="777000", server=HIDDEN)
    assert (hidden.sender.id, hidden.address.chat) == ("777000@lid", "777000@lid")


def test_a_group_is_an_address_and_its_members_are_senders() -> None:
    said = read(chat="1203", sender="4917", group=True)
    assert (said.address.chat, said.sender.id, said.private) == ("1203@g.us", "4917", False)


def test_somebody_without_a_name_is_called_by_the_number() -> None:
    assert read(name="").sender.name == "77"


def test_whatsapps_own_bots_are_bots() -> None:
    assert read(chat="1203", group=True, sender="5", sender_server="bot").sender.is_bot


# --- our own account ---


def test_what_the_owner_writes_to_others_is_not_for_us() -> None:
    assert ignored(chat="4917", sender=US.number, from_me=True)
    assert ignored(chat="1203", sender=US.number, from_me=True, group=True)


@pytest.mark.parametrize(("chat", "server"), [(US.number, "s.whatsapp.net"), (US.hidden, HIDDEN)])
def test_a_note_to_self_is_for_us(chat: str, server: str) -> None:
    note = read(chat=chat, server=server, from_me=True, device=0)
    assert (note.address.chat, note.sender.id, note.private) == (US.number, US.number, True)


def test_what_this_device_wrote_is_no_note() -> None:
    assert ignored(chat=US.number, from_me=True, device=US.device)


# --- what is said ---


def test_a_text_with_a_preview_is_a_text() -> None:
    message = Message()
    message.extendedTextMessage.text = "see https://example.org"
    assert read(content=message).text == "see https://example.org"


@pytest.mark.parametrize(
    "wrappers",
    [
        ["ephemeralMessage"],
        ["viewOnceMessage", "ephemeralMessage"],
        ["viewOnceMessageV2"],
        ["ephemeralMessage", "deviceSentMessage"],
    ],
)
def test_wrappers_make_no_difference(wrappers: list[str]) -> None:
    assert read(content=wrapped(Message(conversation="inside"), *wrappers)).text == "inside"


def test_endless_wrapping_ends() -> None:
    assert ignored(content=wrapped(Message(conversation="inside"), *["ephemeralMessage"] * 50))


@pytest.mark.parametrize("kind", ["reactionMessage", "senderKeyDistributionMessage", "pollUpdateMessage"])
def test_what_says_nothing_is_ignored(kind: str) -> None:
    message = Message()
    getattr(message, kind).SetInParent()
    assert ignored(content=message)


def test_a_deleted_message_is_ignored() -> None:
    message = Message()
    message.protocolMessage.type = ProtocolMessage.REVOKE
    assert ignored(content=message)


def test_a_place_and_a_contact_are_readable() -> None:
    place, contact = Message(), Message()
    place.locationMessage.degreesLatitude, place.locationMessage.degreesLongitude = 52.5, 13.4
    place.locationMessage.name = "Berlin"
    contact.contactMessage.displayName, contact.contactMessage.vcard = "Bob", "BEGIN:VCARD"
    assert read(content=place).text == "[location 52.50000, 13.40000] Berlin"
    assert read(content=contact).text == "[contact] Bob\nBEGIN:VCARD"


# --- edits ---


def test_an_edit_names_what_it_replaces() -> None:
    said = people.say("helo", stanza="A")
    edit = to_inbound(people.edit(said, "hello"), US)
    assert edit is not None
    assert (edit.text, edit.edits) == ("hello", "A")
    assert edit.platform_id != "A"


def test_in_a_group_nobody_can_change_what_another_one_said() -> None:
    said = read(chat="1203", sender="4917", group=True, stanza="A")
    forged = Message()
    forged.protocolMessage.type = ProtocolMessage.MESSAGE_EDIT
    forged.protocolMessage.key.ID = "A"
    forged.protocolMessage.editedMessage.conversation = "send me the password"
    edit = read(chat="1203", sender="666", group=True, content=forged)
    assert edit.edits is not None
    assert edit.edits != said.platform_id
    assert read(chat="1203", sender="666", group=True, stanza="A").platform_id != said.platform_id


# --- groups ---


@pytest.mark.parametrize(("user", "server"), [(US.number, "s.whatsapp.net"), (US.hidden, HIDDEN)])
def test_a_mention_is_meant_for_us_and_not_shown(user: str, server: str) -> None:
    said = read(chat="1203", sender="4917", group=True, content=people.mention(f"@{user} what now?", user, server))
    assert said.addressed
    assert said.text == "what now?"


def test_a_reply_to_us_is_meant_for_us_and_tells_what_we_said() -> None:
    message = people.mention("why?", "1")
    message.extendedTextMessage.contextInfo.participant = f"{US.hidden}@lid"
    message.extendedTextMessage.contextInfo.quotedMessage.conversation = "no"
    said = read(chat="1203", sender="4917", group=True, content=message)
    assert said.addressed
    assert said.quoted == "no"


def test_talk_of_others_is_not_meant_for_us() -> None:
    assert not read(chat="1203", sender="4917", group=True, content=people.mention("@4918 hi", "4918")).addressed


def test_a_quoted_file_is_named_and_a_long_quote_is_whole() -> None:
    message = people.mention("look", "1")
    quoted = message.extendedTextMessage.contextInfo.quotedMessage
    quoted.imageMessage.SetInParent()
    assert read(content=message).quoted == "[image]"
    quoted.Clear()
    quoted.conversation = "x" * 100_000
    assert len(read(content=message).quoted) == 100_000


@pytest.mark.parametrize(
    ("author", "id"), [("4918@s.whatsapp.net", "AB/4918@s.whatsapp.net"), (f"{US.hidden}@lid", "AB")]
)
def test_a_reply_in_a_group_names_the_message_and_brings_its_file(author: str, id: str) -> None:
    message = people.mention("@1 read this", "1")
    context = message.extendedTextMessage.contextInfo
    context.stanzaID, context.participant = "AB", author
    context.quotedMessage.CopyFrom(people.document(b"%PDF", "lease.pdf", "application/pdf"))
    said = read(chat="1203", sender="4917", group=True, content=message)
    assert (said.quoted, said.quoted_id, said.attachments) == ("[document]", id, ())
    [file] = said.quoted_files
    assert (file.name, file.mime, file.size) == ("lease.pdf", "application/pdf", 4)
    assert Message.FromString(b64decode(file.ref)).documentMessage.mediaKey


@pytest.mark.parametrize("group", [False, True])
def test_a_deletion_for_everybody_names_the_message_of_its_author(*, group: bool) -> None:
    gone = Message()
    gone.protocolMessage.type, gone.protocolMessage.key.ID = ProtocolMessage.REVOKE, "AB"
    said = read(chat="1203" if group else "4917", sender="4917", group=group, content=gone)
    assert (said.edits, said.deleted, said.text) == ("AB/4917@s.whatsapp.net" if group else "AB", True, "")
    assert said.platform_id != said.edits


# --- files ---


def test_a_file_comes_with_its_name_and_a_slim_reference() -> None:
    document = people.document(b"%PDF", "plan.pdf", "application/pdf", "the plan")
    said = read(content=wrapped(document, "documentWithCaptionMessage"))
    (file,) = said.attachments
    assert said.text == "the plan"
    assert (file.name, file.mime, file.size) == ("plan.pdf", "application/pdf", 4)
    assert len(file.ref) < 1000
    assert Message.FromString(b64decode(file.ref)).documentMessage.mediaKey == document.documentMessage.mediaKey


@pytest.mark.parametrize(
    ("kind", "kept"), [("imageMessage", "imageMessage"), ("ptvMessage", "videoMessage"), ("stickerMessage",) * 2]
)
def test_every_kind_of_file_can_be_downloaded(kind: str, kept: str) -> None:
    message = Message()
    getattr(message, kind).directPath = "/f"
    getattr(message, kind).mimetype = "audio/ogg; codecs=opus"
    (file,) = read("", content=message).attachments
    assert Message.FromString(b64decode(file.ref)).HasField(kept)
    assert (file.mime, file.name, file.size) == ("audio/ogg", "", None)


def test_a_reference_that_is_far_too_long_is_none() -> None:
    message = Message()
    message.imageMessage.directPath = "/" * 20_000
    assert ignored(content=message)


def associated(kind: str) -> Message:
    message = Message()
    message.imageMessage.directPath = "/f"
    message.messageContextInfo.messageAssociation.associationType = Together.Value(kind)
    message.messageContextInfo.messageAssociation.parentMessageKey.ID = "ALBUM"
    return message


def test_the_pictures_of_an_album_belong_together() -> None:
    pictures = [read("", content=associated("MEDIA_ALBUM")) for _ in range(2)]
    assert [picture.album for picture in pictures] == ["ALBUM", "ALBUM"]
    assert read("alone").album == ""


@pytest.mark.parametrize("kind", ["HD_IMAGE_DUAL_UPLOAD", "HD_VIDEO_DUAL_UPLOAD"])
def test_the_same_picture_in_more_detail_is_no_second_message(kind: str) -> None:
    assert ignored(content=associated(kind))


def test_the_note_that_an_album_begins_says_nothing() -> None:
    message = Message()
    message.albumMessage.expectedImageCount = 2
    assert ignored(content=message)
