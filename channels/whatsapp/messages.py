"""Events of WhatsApp → what happened, handed over in order; a message leaves the spool once it is accepted.

A person is the digits of their phone number wherever it is known."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto
from neonize.aioze.events import MessageEv
from neonize.exc import NeonizeError
from neonize.proto.Neonize_pb2 import JID, MessageSource
from neonize.proto.waE2E import WAWebProtobufsE2E_pb2 as e2e

from channels.whatsapp.link import Link
from channels.whatsapp.store import BOT, PHONE, LinkedAccount
from gateway.domain.channels.channel import Accept
from gateway.domain.channels.platform import Logger
from gateway.domain.conversation.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.errors import TryAgainLater

LONGEST_REF = 16 * 1024
LONGEST_QUOTE = 4000

Together = e2e.MessageAssociation.AssociationType
_SAME_IN_HD = {Together.HD_VIDEO_DUAL_UPLOAD, Together.HD_IMAGE_DUAL_UPLOAD}
"""The same picture once more, larger: the first one is the message."""

_FILES = ("imageMessage", "videoMessage", "ptvMessage", "audioMessage", "documentMessage", "stickerMessage")
_WHERE_IT_IS = ("URL", "directPath", "mediaKey", "fileEncSHA256", "fileSHA256", "fileLength", "mimetype")


def to_inbound(event: MessageEv, us: LinkedAccount) -> Inbound | None:
    """None for what is of no interest (reactions, receipts, our own words); raises `ValueError` or `OverflowError`."""
    info, source = event.Info, event.Info.MessageSource
    if source.IsFromMe and not _is_note_to_self(source, us):
        return None
    said, edited = _edited(_unwrap(event.Message))
    text, files, context = _text(said), _attachments(said), _context(said)
    together = said.messageContextInfo.messageAssociation
    if not (text or files) or together.associationType in _SAME_IN_HD:
        return None
    return Inbound(
        address=Address("whatsapp", us.number, _chat(source, us)),
        sender=_sender(source, us, info.Pushname),
        text=_without_our_name(text, us),
        platform_id=f"{_id(info.ID, source)}:{info.Timestamp}" if edited else _id(info.ID, source),
        sent_at=datetime.fromtimestamp(info.Timestamp / 1000, UTC),
        edits=_id(edited, source) if edited else None,
        private=not source.IsGroup,
        as_owner=True,
        addressed=not source.IsGroup or any(map(us.are, (*context.mentionedJID, context.participant))),
        attachments=files,
        album=_id(together.parentMessageKey.ID, source) if together.associationType == Together.MEDIA_ALBUM else "",
        quoted=_quoted(context),
        quoted_id=_id(context.stanzaID, source) if context.stanzaID else "",
        forwarded="a bot" if event.Message.HasField("botForwardedMessage") else _source(said, context),
    )


def is_hidden(source: MessageSource) -> bool:
    """Whether the sender's phone number is not known yet."""
    return _person(source.Sender, source.SenderAlt) == _bare(source.Sender)


def _is_note_to_self(source: MessageSource, us: LinkedAccount) -> bool:
    """The owner's own chat, written on the phone; what this device writes there is ours."""
    return not source.IsGroup and us.are(_bare(source.Chat)) and source.Sender.Device != us.device


def _id(stanza: str, source: MessageSource) -> str:
    """In a group with its writer, so that nobody can change or take the place of what another one said."""
    return f"{stanza}/{_bare(source.Sender)}" if source.IsGroup else stanza


def _chat(source: MessageSource, us: LinkedAccount) -> str:
    if source.IsGroup:
        return _bare(source.Chat)
    return us.number if source.IsFromMe else _person(source.Chat, source.SenderAlt)


def _sender(source: MessageSource, us: LinkedAccount, name: str) -> Sender:
    who = us.number if source.IsFromMe else _person(source.Sender, source.SenderAlt)
    return Sender(who, name or who, is_bot=source.Sender.Server == BOT)


def _person(jid: JID, other: JID) -> str:
    """Who it is; `other` is their other address, when it came along."""
    return next((known.User for known in (jid, other) if known.Server == PHONE and known.User), _bare(jid))


def _bare(jid: JID) -> str:
    """The person or group as WhatsApp writes it, without the device."""
    return f"{jid.User}@{jid.Server}"


def _without_our_name(text: str, us: LinkedAccount) -> str:
    """A mention is written as the digits of a number, which nobody wants to read."""
    for name in filter(None, (us.number, us.hidden)):
        text = text.replace(f"@{name}", "")
    return text.strip()


def _unwrap(message: e2e.Message) -> e2e.Message:
    """The message itself. What is wrapped deeper than any client does is left as it is."""
    for _ in range(8):
        values = (value for _, value in message.ListFields())
        wrapped = (each for each in values if isinstance(each, e2e.FutureProofMessage | e2e.DeviceSentMessage))
        message = next((each.message for each in wrapped), message)
    return message


def _edited(said: e2e.Message) -> tuple[e2e.Message, str]:
    """What it says now, and the id of the message that it replaces."""
    protocol = said.protocolMessage
    if said.HasField("protocolMessage") and protocol.type == e2e.ProtocolMessage.MESSAGE_EDIT:
        return _unwrap(protocol.editedMessage), str(protocol.key.ID)
    return said, ""


def _text(message: e2e.Message) -> str:
    """The words of an unwrapped message, "" when it has none."""
    if message.HasField("extendedTextMessage"):
        return str(message.extendedTextMessage.text)
    if message.HasField("locationMessage"):
        place = message.locationMessage
        return f"[location {place.degreesLatitude:.5f}, {place.degreesLongitude:.5f}] {place.name}".strip()
    if message.HasField("contactMessage"):
        return f"[contact] {message.contactMessage.displayName}\n{message.contactMessage.vcard}"
    captions = (str(getattr(file, "caption", "")) for file in _files(message).values())
    return str(message.conversation) or next(captions, "")


def _quoted(context: e2e.ContextInfo) -> str:
    """What a message replies to, shortened; a file without words is named by its kind."""
    said = _unwrap(context.quotedMessage)
    text = _text(said) or next((f"[{name.removesuffix('Message')}]" for name in _files(said)), "")
    return text[:LONGEST_QUOTE]


def _source(said: e2e.Message, context: e2e.ContextInfo) -> str:
    """Where a text comes from that its sender only passed on, as far as WhatsApp tells; other people fill in cards."""
    if context.isForwarded or context.forwardingScore:
        return str(context.forwardedNewsletterMessageInfo.newsletterName) or "somebody"
    return "a card" if said.HasField("contactMessage") or said.locationMessage.name else ""


def _context(message: e2e.Message) -> e2e.ContextInfo:
    """Whom it mentions and what it replies to; empty where there is nothing of that."""
    contexts = (getattr(value, "contextInfo", None) for _, value in message.ListFields())
    return next((context for context in contexts if isinstance(context, e2e.ContextInfo)), e2e.ContextInfo())


def _attachments(message: e2e.Message) -> tuple[Attachment, ...]:
    found = (_attachment(name, file) for name, file in _files(message).items())
    return tuple(attachment for attachment in found if len(attachment.ref) <= LONGEST_REF)


def _attachment(name: str, file: Proto) -> Attachment:
    """The reference holds what is needed to get and decrypt it; neonize takes a round video as a video."""
    slim = e2e.Message()
    kept = getattr(slim, "videoMessage" if name == "ptvMessage" else name)
    for field in _WHERE_IT_IS:
        if file.HasField(field):
            setattr(kept, field, getattr(file, field))
    title = str(getattr(file, "fileName", "") or getattr(file, "title", ""))
    mime = str(kept.mimetype).partition(";")[0].strip()
    return Attachment(b64encode(slim.SerializeToString()).decode(), title, mime, int(kept.fileLength) or None)


def _files(message: e2e.Message) -> dict[str, Proto]:
    return {field.name: value for field, value in message.ListFields() if field.name in _FILES}


BATCH_MESSAGES = 20
LONGEST_PAUSE = 2.0


async def hand_over_spool(link: Link, accept: Accept, log: Logger) -> None:
    """Until cancelled; what an earlier run of the program left comes first."""
    while True:
        link.arrived.clear()
        kept = await asyncio.to_thread(link.spool.head, BATCH_MESSAGES)
        if not kept:
            await link.arrived.wait()
        elif (us := link.pairing.us) is None:
            await link.pairing.connected.wait()
        else:
            read = [await _read(data, us, link, log) for _, data in kept]
            await _hand_over([inbound for inbound in read if inbound is not None], link, accept, log)
            await asyncio.to_thread(link.spool.drop, [name for name, _ in kept])


async def _hand_over(batch: Sequence[Inbound], link: Link, accept: Accept, log: Logger) -> None:
    failures = 0
    while batch:
        try:
            return await accept(batch)
        except TryAgainLater as error:
            if not failures:
                log.warning("whatsapp.not_accepted", why=str(error))
            failures += 1
            await link.patience.after(failures, LONGEST_PAUSE)
    return None


async def _read(data: bytes, us: LinkedAccount, link: Link, log: Logger) -> Inbound | None:
    """What breaks WhatsApp's own rules is left out."""
    try:
        event = MessageEv.FromString(data)
        await _add_phone_number(event, link)
        return to_inbound(event, us)
    except (DecodeError, ValueError, OverflowError) as error:
        log.warning("whatsapp.unreadable", why=f"{type(error).__name__}: {error}"[:200])
        return None


async def _add_phone_number(event: MessageEv, link: Link) -> None:
    """Whoever is let in is known by the phone number; neonize may have learnt it from an earlier message.

    Go dies of the question when it has no session.
    """
    source = event.Info.MessageSource
    if source.IsFromMe or not is_hidden(source):
        return
    await link.pairing.connected.wait()
    with suppress(NeonizeError):
        number = await link.client.get_pn_from_lid(source.Sender)
        if number.User:
            source.SenderAlt.CopyFrom(number)
