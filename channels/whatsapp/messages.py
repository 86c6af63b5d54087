"""Events of WhatsApp → messages, in order; a message leaves the spool once it is accepted.

People are identified by the digits of their phone number wherever it is known.
"""

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

from channels.whatsapp.content import FILES, described, is_own, words_in
from channels.whatsapp.link import Link
from channels.whatsapp.store import BOT, PHONE, LinkedAccount
from gateway.domain.channels.channel import Accept
from gateway.domain.channels.platform import Logger
from gateway.domain.conversation.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.errors import TryAgainLater

MAX_REF_CHARS = 16 * 1024
VIEW_ONCE = "[view once: its sender wants it seen once; do not pass it on]"

Together = e2e.MessageAssociation.AssociationType
_SAME_IN_HD = {Together.HD_VIDEO_DUAL_UPLOAD, Together.HD_IMAGE_DUAL_UPLOAD}
"""A larger copy of a picture or video that came before."""

_WHERE_IT_IS = ("URL", "directPath", "mediaKey", "fileEncSHA256", "fileSHA256", "fileLength", "mimetype")


def to_inbound(event: MessageEv, account: LinkedAccount) -> Inbound | None:
    """The message in an event; None for reactions, receipts and our own. Raises `ValueError` or `OverflowError`."""
    info, source = event.Info, event.Info.MessageSource
    if source.IsFromMe and not _is_note_to_self(source, account):
        return None
    said, edited, deleted = _edited(_unwrap(event.Message))
    text, files, context = _text(said), _attachments(said), _context(said)
    together = said.messageContextInfo.messageAssociation
    if not (text or files or deleted) or together.associationType in _SAME_IN_HD:
        return None
    return Inbound(
        address=Address("whatsapp", account.number, _chat(source, account)),
        sender=_sender(source, account, info.Pushname),
        text=_without_own_name(text, account),
        platform_id=f"{_id(info.ID, source)}:{info.Timestamp}" if edited else _id(info.ID, source),
        sent_at=datetime.fromtimestamp(info.Timestamp / 1000, UTC),
        edits=_id(edited, source) if edited else None,
        deleted=deleted,
        private=not source.IsGroup,
        as_owner=True,
        addressed=not source.IsGroup or any(map(account.are, (*context.mentionedJID, context.participant))),
        attachments=files,
        album=_id(together.parentMessageKey.ID, source) if together.associationType == Together.MEDIA_ALBUM else "",
        quoted=_quoted(context),
        quoted_id=_quoted_id(context, source, account) if context.stanzaID else "",
        quoted_files=_attachments(_unwrap(context.quotedMessage)),
        added=_added(event, said, context, text),
        forwarded="a bot" if event.Message.HasField("botForwardedMessage") else _source(said, context),
    )


def timer_of(event: MessageEv) -> tuple[int, int] | None:
    """The timer of the chat after this message: seconds (0: none), and since when; None if it doesn't tell."""
    said = _unwrap(event.Message)
    protocol, context = said.protocolMessage, _context(said)
    if said.HasField("protocolMessage") and protocol.type == e2e.ProtocolMessage.EPHEMERAL_SETTING:
        return protocol.ephemeralExpiration, protocol.ephemeralSettingTimestamp
    tells = context.expiration or said.conversation or said.HasField("extendedTextMessage") or _files(said)
    return (context.expiration, context.ephemeralSettingTimestamp) if tells else None


def is_hidden(source: MessageSource) -> bool:
    """Whether the sender's phone number is not known yet."""
    return _person(source.Sender, source.SenderAlt) == _bare(source.Sender)


def _is_note_to_self(source: MessageSource, account: LinkedAccount) -> bool:
    """Whether it was written in the owner's own chat on another device."""
    return not source.IsGroup and account.are(_bare(source.Chat)) and source.Sender.Device != account.device


def _id(stanza: str, source: MessageSource) -> str:
    """The id; in a group with the author, so that nobody can edit or replace the message of another person."""
    return f"{stanza}/{_bare(source.Sender)}" if source.IsGroup else stanza


def _quoted_id(context: e2e.ContextInfo, source: MessageSource, account: LinkedAccount) -> str:
    """The id of the message replied to, as `_id` makes it; ids of our own have no author."""
    author = str(context.participant)
    return f"{context.stanzaID}/{author}" if source.IsGroup and not account.are(author) else str(context.stanzaID)


def _chat(source: MessageSource, account: LinkedAccount) -> str:
    if source.IsGroup:
        return _bare(source.Chat)
    return account.number if source.IsFromMe else _person(source.Chat, source.SenderAlt)


def _sender(source: MessageSource, account: LinkedAccount, name: str) -> Sender:
    who = account.number if source.IsFromMe else _person(source.Sender, source.SenderAlt)
    return Sender(who, name or who, is_bot=source.Sender.Server == BOT)


def _person(jid: JID, other: JID) -> str:
    """The phone number if one of the two addresses of a person has it, otherwise the first address."""
    return next((known.User for known in (jid, other) if known.Server == PHONE and known.User), _bare(jid))


def _bare(jid: JID) -> str:
    """The JID without the device."""
    return f"{jid.User}@{jid.Server}"


def _without_own_name(text: str, account: LinkedAccount) -> str:
    """The text without mentions of the account, which are written as digits."""
    for name in filter(None, (account.number, account.hidden)):
        text = text.replace(f"@{name}", "")
    return text.strip()


def _unwrap(message: e2e.Message) -> e2e.Message:
    """The message inside its wrappers, of which eight are removed at most."""
    for _ in range(8):
        values = (value for _, value in message.ListFields())
        wrapped = (each for each in values if isinstance(each, e2e.FutureProofMessage | e2e.DeviceSentMessage))
        message = next((each.message for each in wrapped), message)
    return message


def _edited(said: e2e.Message) -> tuple[e2e.Message, str, bool]:
    """The new content of an edited message, the id of the old one, "" if it is not an edit, and whether it was deleted.

    A deletion for everybody has the kind REVOKE.
    """
    protocol = said.protocolMessage
    if said.HasField("protocolMessage") and protocol.key.ID:
        if protocol.type == e2e.ProtocolMessage.MESSAGE_EDIT:
            return _unwrap(protocol.editedMessage), str(protocol.key.ID), False
        if protocol.type == e2e.ProtocolMessage.REVOKE:
            return e2e.Message(), str(protocol.key.ID), True
    return said, "", False


def _text(message: e2e.Message) -> str:
    """The text of an unwrapped message; "" if it has none."""
    if message.HasField("extendedTextMessage"):
        return str(message.extendedTextMessage.text)
    captions = [str(getattr(file, "caption", "")) for file in _files(message).values()]
    other = (words for _, words in described(message))
    return str(message.conversation) or "\n".join(filter(None, (*captions, *other)))


def _added(event: MessageEv, said: e2e.Message, context: e2e.ContextInfo, text: str) -> str:
    """Additions to the sender's text: previews, labels of files, advertisements, "view once"."""
    shown = (said.extendedTextMessage, *_files(said).values())
    once = event.IsViewOnce or event.IsViewOnceV2 or event.IsViewOnceV2Extension
    once = once or any(getattr(each, "viewOnce", False) for each in shown)
    once = once or any(field.name.startswith("viewOnce") for field, _ in event.Message.ListFields())
    words = (word for each in (*shown, context) for word in words_in(each))
    return "\n".join([*([VIEW_ONCE] if once else []), *(word for word in words if word not in text)])


def _quoted(context: e2e.ContextInfo) -> str:
    """The text that a message replies to; for a file without a text its kind."""
    asked = context.questionReplyQuotedMessage.quotedQuestion
    said = _unwrap(context.quotedMessage if context.HasField("quotedMessage") else asked)
    return _text(said) or next((f"[{name.removesuffix('Message')}]" for name in _files(said)), "")


def _source(said: e2e.Message, context: e2e.ContextInfo) -> str:
    """The author of a text that its sender did not write; "" if they did. Contact cards count as others'."""
    if context.isForwarded or context.forwardingScore:
        return str(context.forwardedNewsletterMessageInfo.newsletterName) or "somebody"
    return "a card" if said.locationMessage.name or not all(is_own(kind) for kind, _ in described(said)) else ""


def _context(message: e2e.Message) -> e2e.ContextInfo:
    """The mentions and the quoted message; empty if there are none."""
    contexts = (getattr(value, "contextInfo", None) for _, value in message.ListFields())
    return next((context for context in contexts if isinstance(context, e2e.ContextInfo)), e2e.ContextInfo())


def _attachments(message: e2e.Message) -> tuple[Attachment, ...]:
    found = (_attachment(name, file) for name, file in _files(message).items())
    return tuple(attachment for attachment in found if len(attachment.ref) <= MAX_REF_CHARS)


def _attachment(name: str, file: Proto) -> Attachment:
    """A file, with everything needed to fetch and decrypt it as its reference. Round videos count as videos."""
    slim = e2e.Message()
    kept = getattr(slim, "videoMessage" if name == "ptvMessage" else name)
    for field in _WHERE_IT_IS:
        if file.HasField(field):
            setattr(kept, field, getattr(file, field))
    title = str(getattr(file, "fileName", "") or getattr(file, "title", ""))
    mime = str(kept.mimetype).partition(";")[0].strip()
    return Attachment(b64encode(slim.SerializeToString()).decode(), title, mime, int(kept.fileLength) or None)


def _files(message: e2e.Message) -> dict[str, Proto]:
    return {field.name: value for field, value in message.ListFields() if field.name in FILES}


BATCH_MESSAGES = 20
LONGEST_PAUSE = 2.0


async def hand_over_spool(link: Link, accept: Accept, log: Logger) -> None:
    """Hand over messages until cancelled, first those that an earlier run left in the spool."""
    while True:
        link.arrived.clear()
        if not (kept := await asyncio.to_thread(link.spool.head, BATCH_MESSAGES)):
            await link.arrived.wait()
        elif (account := link.pairing.account) is None:
            await link.pairing.connected.wait()
        else:
            read = [await _read(data, account, link, log) for _, data in kept]
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
            await link.timeouts.after(failures, LONGEST_PAUSE)
    return None


async def _read(data: bytes, account: LinkedAccount, link: Link, log: Logger) -> Inbound | None:
    """The message in an event, or None; a malformed one is logged."""
    try:
        event = MessageEv.FromString(data)
        await _add_phone_number(event, link)
        if (timer := timer_of(event)) is not None:
            await asyncio.to_thread(link.timers.note, _chat(event.Info.MessageSource, account), *timer)
        return to_inbound(event, account)
    except (DecodeError, ValueError, OverflowError) as error:
        log.warning("whatsapp.unreadable", why=f"{type(error).__name__}: {error}"[:200])
        return None


async def _add_phone_number(event: MessageEv, link: Link) -> None:
    """Add the sender's phone number, which allow lists use, if neonize knows it from an earlier message.

    Waits for a session, without which Go crashes on the request.
    """
    source = event.Info.MessageSource
    if source.IsFromMe or not is_hidden(source):
        return
    await link.pairing.connected.wait()
    with suppress(NeonizeError):
        number = await link.client.get_pn_from_lid(source.Sender)
        if number.User:
            source.SenderAlt.CopyFrom(number)
