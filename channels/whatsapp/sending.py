"""Sending messages, their Markdown as WhatsApp's marks, and files both ways."""

import asyncio
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from markdown_it.tree import SyntaxTreeNode
from neonize.aioze.client import NewAClient
from neonize.exc import NeonizeError
from neonize.proto.Neonize_pb2 import JID
from neonize.proto.waE2E.WAWebProtobufsE2E_pb2 import Message
from neonize.utils.enum import MediaType
from neonize.utils.jid import build_jid

from channels.whatsapp.sdk import MAX_FILE, OFFLINE_PAUSE
from channels.whatsapp.store import PHONE
from gateway.domain.channels.channel import (
    FetchDelayed,
    FetchFailed,
    Outgoing,
    OutgoingFile,
    SendDelayed,
    SendFailed,
    SendUncertain,
)
from gateway.domain.conversation.inbound import Attachment
from gateway.domain.text.markdown import Renderer
from gateway.domain.text.texts import one_line

MAX_RENDERED = 32_000
"""Characters of a rendered text; WhatsApp accepts twice as many. Repeated links make a text longer."""

_MARKS = {"heading": "*", "strong": "*", "em": "_", "s": "~", "code_inline": "`"}


def to_whatsapp(text: str) -> str:
    """Markdown with WhatsApp's marks. Never raises; a text that can't be rendered is returned unchanged."""
    rendered = _Marks().render(text)
    return rendered if rendered.strip() and len(rendered) <= MAX_RENDERED else text


class _Marks(Renderer):
    bullet = "-"
    indent = "  "
    picture = ""

    def marked(self, node: SyntaxTreeNode, inner: str) -> str:
        """WhatsApp accepts marks only within a line and directly beside words."""
        if node.type == "heading":
            inner = inner.replace("*", "")
        known = node.type == "code_inline" or (inner and inner == inner.strip() and "\n" not in inner)
        return f"{_MARKS[node.type]}{inner}{_MARKS[node.type]}" if known else inner

    def code(self, content: str) -> str:
        return f"```\n{content.rstrip()}\n```"

    def link(self, target: str, label: str) -> str:
        """The label with the address, so that a reader sees where it leads."""
        return target or label if label in {"", target} else f"{label} ({target})"

    def cell(self, node: SyntaxTreeNode) -> str:
        return " ".join(self.inlines(node.children).split())

    def table(self, rows: Sequence[Sequence[str]]) -> str:
        """The table as code, its cells separated by bars."""
        return self.code("\n".join(map(" | ".join, rows)))


BUSY_PAUSE = 60.0
PIECE = 256 * 1024

_ITS_HOSTS = re.compile(r"https://(?:[a-z0-9-]+\.)+whatsapp\.net/")
_SHOWN_AS = {"image/jpeg": "Image", "image/png": "Image", "video/mp4": "Video", "video/3gpp": "Video"}
_SOUNDS = {"audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg", "audio/x-m4a"}
"""Sound that phones play in a chat; other sound goes as a document."""
_REFUSED = (
    *(f"server returned error {code}" for code in (400, 403, 404, 406, 410)),
    *("no lid found", "not on whatsapp", "you're not participating", "that group does not exist"),
    *("can't send message to unknown server", "message recipient must be a user jid"),
)
_BUSY = ("server returned error", "rate-overlimit", "status 429")
_NEVER_LEFT = ("websocket not connected", "the store doesn't contain a device jid", "client is nil", "failed to get ")
_NOT_UPLOADED = tuple(f"status code {code}" for code in (400, 413, 415))
_GONE = ("403", "404", "410", "nothing downloadable", "hash", "hmac", "no url", "mismatch", "media key", "decrypt")


def to_jid(chat: str) -> JID:
    """The JID of an `Address.chat`."""
    user, _, server = chat.partition("@")
    return build_jid(user, server or PHONE)


async def send(client: NewAClient, message: Outgoing, quote: str, timer: tuple[int, int] | None = None) -> str:
    """Send a message and return WhatsApp's id of it, which can't be chosen; raises as `Channel.send` does.

    `quote` is the text of `message.reply_to`, which the reply itself carries. `timer` is that of a chat whose messages
    disappear: seconds, and since when.
    """
    text, body = await asyncio.to_thread(to_whatsapp, message.text), Message()
    if message.file is not None:
        shown = await _upload(client, message.file, text, body)
    else:
        shown = body.extendedTextMessage
        shown.text = text
    if message.reply_to is not None and not message.private:
        stanza, _, writer = message.reply_to.partition("/")  # in a group, ids contain the author
        shown.contextInfo.stanzaID, shown.contextInfo.participant = stanza, writer
        shown.contextInfo.quotedMessage.conversation = quote
    if timer is not None:
        shown.contextInfo.expiration, shown.contextInfo.ephemeralSettingTimestamp = timer
    try:
        return str((await client.send_message(to_jid(message.address.chat), body)).ID)
    except NeonizeError as error:
        raise _outcome(one_line(str(error), 300)) from error


async def fetch(client: NewAClient, attachment: Attachment) -> AsyncIterator[bytes]:
    """Yield the bytes of a file, which is in memory as a whole; raises `FetchFailed` or `FetchDelayed`."""
    if (attachment.size or 0) > MAX_FILE:
        raise FetchFailed(f"the file is larger than {MAX_FILE // 2**20} MB")
    try:
        data = await client.download_any(_at_whatsapp(Message.FromString(b64decode(attachment.ref))))
    except (ValueError, DecodeError) as error:
        raise FetchFailed("the file is not one of WhatsApp's") from error
    except NeonizeError as error:
        text = one_line(str(error), 300)
        if any(phrase in text.lower() for phrase in _GONE):
            raise FetchFailed(f"WhatsApp no longer provides the file: {text}") from error
        raise FetchDelayed(text) from error
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


def _at_whatsapp(message: Message) -> Message:
    """The message without addresses outside WhatsApp: its sender wrote them, and the SDK would make requests there."""
    for _, file in message.ListFields():
        if not _ITS_HOSTS.match(getattr(file, "URL", "")):
            file.ClearField("URL")
        if not getattr(file, "directPath", "").startswith("/"):
            file.ClearField("directPath")
    return message


async def _upload(client: NewAClient, file: OutgoingFile, caption: str, body: Message) -> Any:
    """Upload a file and return the part of `body` that shows it; audio with a caption is sent as a document."""
    kind = _SHOWN_AS.get(file.mime, "Audio" if file.mime in _SOUNDS and not caption else "Document")
    try:
        data = await asyncio.to_thread(Path(file.path).read_bytes)
        if data.startswith(b"OggS") and b"OpusHead" not in data[:64]:
            kind = "Document"  # phones play no other sound in Ogg
        there = await client.upload(data, MediaType[f"Media{kind}"])
    except OSError as error:
        raise SendFailed(f"{file.name} cannot be read: {error.strerror}") from error
    except NeonizeError as error:
        text = one_line(str(error), 300)
        if text.endswith(_NOT_UPLOADED):
            raise SendFailed(f"WhatsApp does not take {file.name}: {text}") from error
        raise SendDelayed(text, OFFLINE_PAUSE) from error
    shown = getattr(body, f"{kind.lower()}Message")
    shown.URL, shown.directPath, shown.mimetype = there.url, there.DirectPath, file.mime
    shown.mediaKey, shown.fileLength = there.MediaKey, there.FileLength
    shown.fileEncSHA256, shown.fileSHA256 = there.FileEncSHA256, there.FileSHA256
    if kind == "Audio" and data.startswith(b"OggS"):
        shown.mimetype, shown.PTT, shown.seconds = "audio/ogg; codecs=opus", True, _seconds(data)
    if caption:
        shown.caption = caption
    if kind == "Document":
        shown.fileName = shown.title = file.name
    return shown


def _seconds(ogg: bytes) -> int:
    """The length of an Opus recording: RFC 7845 counts 48,000 samples a second, up to the last page."""
    last = ogg.rfind(b"OggS")
    return max(1, round(int.from_bytes(ogg[last + 6 : last + 14], "little") / 48_000))


def _outcome(text: str) -> SendFailed | SendDelayed | SendUncertain:
    """The error for a text from Go.

    | text | the message was | error |
    | --- | --- | --- |
    | one of `_REFUSED` | refused permanently | `SendFailed` |
    | one of `_BUSY`, such as any other code of the server | not sent | `SendDelayed`, a minute |
    | one of `_NEVER_LEFT`, such as no connection, no account | not sent | `SendDelayed`, some seconds |
    | anything else | perhaps sent | `SendUncertain` |
    """
    lower = text.lower()
    if any(phrase in lower for phrase in _REFUSED):
        return SendFailed(f"WhatsApp refused the message: {text}")
    if any(phrase in lower for phrase in _BUSY):
        return SendDelayed(text, BUSY_PAUSE)
    return SendDelayed(text, OFFLINE_PAUSE) if any(phrase in lower for phrase in _NEVER_LEFT) else SendUncertain(text)
