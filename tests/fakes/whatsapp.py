"""WhatsApp as neonize's Go library shows it: its exported functions, its threads, its events, and the people behind.

Everything of neonize above the library is real. Calls are checked against the types that ctypes would convert to,
events go as bytes through the callbacks that neonize hands over, from a thread of the library.
Written after goneonize/main.go and whatsmeow; the quirks are theirs.
"""

import ctypes
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from queue import Empty, Queue
from threading import Event
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message as Proto

from channels.whatsapp.sdk import preload

with nullcontext():  # before anything else imports neonize
    preload()

from neonize import _binder
from neonize.aioze import client as aioze_client
from neonize.aioze.events import (
    ConnectedEv,
    DisconnectedEv,
    LoggedOutEv,
    MessageEv,
    PairStatusEv,
)
from neonize.events import EVENT_TO_INT
from neonize.proto import Neonize_pb2 as neonize
from neonize.proto.waE2E.WAWebProtobufsE2E_pb2 import ContextInfo, DocumentMessage, Message, ProtocolMessage
from neonize.utils.jid import build_jid

PHONE, HIDDEN, GROUP = "s.whatsapp.net", "lid", "g.us"
DEVICE = 0
"""The code of the event that tells who we are."""

CODE = "ABCD-1234"
NOT_CONNECTED = "websocket not connected"
TIMED_OUT = "timed out waiting for message send response"


@dataclass(frozen=True, slots=True)
class Sent:
    """What people see of the agent; `text` is what is read, a caption too."""

    chat: str
    text: str
    message: Message


@dataclass
class FakeWhatsApp:
    """One account, its phone, and the people it talks to; `with` puts it in the place of the library."""

    number: str = "4915550001"
    hidden: str = "900001"
    device: int = 7
    linked: bool = True
    online: bool = True
    sent: list[Sent] = field(default_factory=list)
    composing: list[str] = field(default_factory=list)
    files: dict[bytes, bytes] = field(default_factory=dict)
    downloaded: list[tuple[str, str]] = field(default_factory=list)
    numbers: dict[str, str] = field(default_factory=dict)
    """Hidden names that the library has learnt, with their phone numbers."""
    pending: list[Proto] = field(default_factory=list)
    """What the servers keep while the device is away."""
    sessions: int = 0
    pings: int = 0
    codes: int = 6
    last_code: float = 60.0
    """How many seconds the last code is good for."""
    phone: str = ""

    def __post_init__(self) -> None:
        self._ids = count(1)
        self._real = _binder.gocode
        self._queue: Queue[Proto | bytes] = Queue()
        self._connected = False
        self._stopped = Event()
        self._scanned = Event()
        self._ended = Event()
        self._subscribed: set[int] = set()
        self._errors: list[str] = []
        self._lost = 0
        self._gave_up = ""

    def __enter__(self) -> Self:
        _binder.gocode = self
        aioze_client.gocode = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._stopped.set()
        _binder.gocode = self._real
        aioze_client.gocode = self._real

    def __getattr__(self, name: str) -> Callable[..., object]:
        """An exported function; arguments that ctypes could not pass on are an error here too."""
        if name.startswith("__"):
            raise AttributeError(name)
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        real, ours = getattr(self._real, name), object.__getattribute__(self, f"_{snake}")

        def call(*arguments: object) -> object:
            for kind, argument in zip(real.argtypes, arguments, strict=True):
                if argument is not None and not isinstance(argument, ctypes.Array):
                    kind.from_param(argument)
            return ours(*arguments)

        return call

    # --- what people and networks do ---

    def say(
        self,
        text: str = "",
        chat: str = "77",
        *,
        sender: str | None = None,
        group: bool = False,
        from_me: bool = False,
        device: int = 0,
        server: str = PHONE,
        sender_server: str = "",
        other: str = "",
        name: str = "Ada",
        content: Message | None = None,
        stanza: str | None = None,
        sent_at: int | None = None,
    ) -> MessageEv:
        """Someone writes; `other` is the sender's other address, `server` where the first one belongs."""
        user = sender or chat
        source = neonize.MessageSource(
            Chat=build_jid(chat, GROUP if group else server),
            Sender=neonize.JID(User=user, Server=sender_server or server, Device=device, RawAgent=0, Integrator=0),
            IsFromMe=from_me,
            IsGroup=group,
        )
        if other:
            source.SenderAlt.CopyFrom(build_jid(other, PHONE if server == HIDDEN else HIDDEN))
        return self.push(
            MessageEv(
                Info=neonize.MessageInfo(
                    MessageSource=source,
                    ID=stanza or f"3EB0{next(self._ids):012}",
                    Pushname=name,
                    Timestamp=int(time.time() * 1000) if sent_at is None else sent_at,
                ),
                Message=content or Message(conversation=text),
            )
        )

    def edit(self, said: MessageEv, text: str) -> MessageEv:
        """The writer changes it."""
        source = said.Info.MessageSource
        protocol = ProtocolMessage(
            type=ProtocolMessage.MESSAGE_EDIT, editedMessage=Message(conversation=text), timestampMS=1
        )
        protocol.key.ID = said.Info.ID
        edit = MessageEv(Info=said.Info, Message=Message(protocolMessage=protocol), IsEdit=True)
        edit.Info.ID = f"3EB0{next(self._ids):012}"
        edit.Info.MessageSource.CopyFrom(source)
        return self.push(edit)

    def document(self, data: bytes, name: str, mime: str, caption: str = "") -> Message:
        """A message with a file that can be downloaded."""
        key = sha256(data).digest()
        self.files[key] = data
        file = DocumentMessage(
            URL="https://mmg.whatsapp.net/f", directPath="/f", mediaKey=key, fileEncSHA256=key, fileSHA256=key,
            fileLength=len(data), mimetype=mime, fileName=name, caption=caption, JPEGThumbnail=b"x" * 50_000,
        )  # fmt: skip
        return Message(documentMessage=file)

    def mention(self, text: str, user: str, server: str = PHONE) -> Message:
        """A text that names somebody."""
        message = Message()
        message.extendedTextMessage.text = text
        message.extendedTextMessage.contextInfo.CopyFrom(ContextInfo(mentionedJID=[f"{user}@{server}"]))
        return message

    def push(self, event: Any) -> Any:
        """The servers have an event for us."""
        if isinstance(event, MessageEv) and not self._connected:
            self.pending.append(event)
        else:
            self._queue.put(event)
        return event

    @property
    def quiet(self) -> bool:
        """Everything was handed over."""
        return self._queue.unfinished_tasks == 0

    def garbage(self, data: bytes = b"\xff\xff\xff") -> None:
        """The bytes of a message that is none."""
        self._queue.put(data)

    def scan(self) -> None:
        """The phone takes the code."""
        self._scanned.set()

    def go_down(self) -> None:
        """The network is gone."""
        self.online = self._connected = False
        self._queue.put(DisconnectedEv())

    def come_back(self) -> None:
        """whatsmeow reconnects by itself."""
        self.online = True
        if not self._stopped.is_set() and self.linked:
            self._connect()

    def unlink(self) -> None:
        """The owner removes the device on the phone."""
        self.linked = self._connected = False
        self._queue.put(LoggedOutEv(OnConnect=False, Reason=neonize.LOGGED_OUT))

    def give_up(self, error: str) -> None:
        """The library's long call returns."""
        self._gave_up = error
        self._queue.put(b"")

    def fail(self, error: str) -> None:
        """The next message or file is answered with an error of Go."""
        self._errors.append(error)

    def lose_answer(self) -> None:
        """The next message is shown and its receipt never comes."""
        self._lost += 1

    # --- what the library exports ---

    def _neonize(self, *arguments: Any) -> bytes:
        _, uuid, _, _, _, _, on_qr, _, on_event, _, subscribers, size, *_ = arguments
        self.sessions += 1
        self._stopped, self._queue = Event(), Queue()  # an earlier session may not have noticed its end yet
        self._subscribed = set(bytes(subscribers)[:size])
        if not self.online:
            return b"failed to dial whatsapp web websocket: dial tcp: lookup web.whatsapp.com: no such host"
        if not self.linked:
            self._pair(uuid, on_qr)
        self._call(on_event, uuid, self._me(), DEVICE)
        if self.linked:
            self._connect()
        return self._dispatch(on_event, uuid)

    def _pair(self, uuid: bytes, on_qr: Callable[..., None]) -> None:
        """Show codes until one is taken, or the last one was shown long enough.

        Stopped meanwhile, Go never returns: its channel of codes stays open.
        """
        stopped = self._stopped
        for number in range(self.codes):
            on_qr(uuid, f"2@code{number},key".encode())
            shown_until = time.monotonic() + (0.01 if number + 1 < self.codes else self.last_code)
            while time.monotonic() < shown_until:
                if stopped.is_set():
                    self._ended.wait()
                if self._scanned.wait(0.01):
                    self._scanned.clear()
                    self.linked = True
                    paired = neonize.PairStatus.SUCCESS
                    self._queue.put(PairStatusEv(ID=build_jid(self.number), Platform="android", Status=paired))
                    return

    def _me(self) -> neonize.Device:
        if not self.linked:
            return neonize.Device()
        jid = neonize.JID(User=self.number, Server=PHONE, Device=self.device, RawAgent=0, Integrator=0)
        return neonize.Device(JID=jid, LID=build_jid(self.hidden, HIDDEN))

    def _connect(self) -> None:
        self._connected = True
        self._queue.put(ConnectedEv(status=True))
        while self.pending:
            self._queue.put(self.pending.pop(0))

    def _dispatch(self, on_event: Callable[..., None], uuid: bytes) -> bytes:
        queue, stopped = self._queue, self._stopped
        while not stopped.is_set():
            try:
                event = queue.get(timeout=0.01)
            except Empty:
                continue
            if self._gave_up:
                error, self._gave_up, self._connected = self._gave_up, "", False
                return error.encode()
            code = EVENT_TO_INT[MessageEv if isinstance(event, bytes) else type(event)]
            if code in self._subscribed:
                self._call(on_event, uuid, event, code)
            queue.task_done()
        return b""

    def _call(self, on_event: Callable[..., None], uuid: bytes, event: Proto | bytes, code: int) -> None:
        data = event if isinstance(event, bytes) else fill(event).SerializeToString()
        buffer = ctypes.create_string_buffer(data, len(data))
        on_event(uuid, ctypes.addressof(buffer), len(data), code)

    def _stop(self, _uuid: bytes) -> None:
        self._connected = False
        self._stopped.set()

    def _send_message(self, _uuid: bytes, jid: bytes, _: int, body: bytes, _size: int) -> bytes:
        to, message = neonize.JID.FromString(jid), Message.FromString(body)
        answer = neonize.SendMessageReturnFunction()
        if self._errors or not self._connected:
            answer.Error = self._errors.pop(0) if self._errors else NOT_CONNECTED
            return answer.SerializeToString()
        self.sent.append(Sent(f"{to.User}@{to.Server}", _text(message), message))
        if self._lost:
            self._lost -= 1
            answer.Error = TIMED_OUT
        else:
            answer.SendResponse.ID = f"3EB0{next(self._ids):012}"
            fill(answer)
        return answer.SerializeToString()

    def _send_chat_presence(self, _uuid: bytes, jid: bytes, _size: int, _state: int, _media: int) -> bytes:
        if not self._connected:
            return NOT_CONNECTED.encode()
        self.composing.append(neonize.JID.FromString(jid).User)
        return b""

    def _set_passive(self, _uuid: bytes, _passive: bool) -> bytes:
        if not self._connected:
            return NOT_CONNECTED.encode()
        self.pings += 1
        return b""

    def _upload(self, _uuid: bytes, data: bytes, _size: int, kind: int) -> bytes:
        answer = neonize.UploadReturnFunction()
        if self._errors:
            answer.Error = self._errors.pop(0)
        else:
            key = sha256(bytes([kind]) + data).digest()
            self.files[key] = data
            answer.UploadResponse.MediaKey = answer.UploadResponse.FileSHA256 = key
            answer.UploadResponse.FileEncSHA256 = key
            answer.UploadResponse.FileLength = len(data)
            answer.UploadResponse.url, answer.UploadResponse.DirectPath = "https://mmg.whatsapp.net/u", "/u"
        return fill(answer).SerializeToString()

    def _download_any(self, _uuid: bytes, body: bytes, _size: int) -> bytes:
        message = Message.FromString(body)
        (_, file), *_ = message.ListFields()
        self.downloaded.append((file.URL, file.directPath))
        if self._errors:
            return neonize.DownloadReturnFunction(Error=self._errors.pop(0)).SerializeToString()
        if file.mediaKey not in self.files:
            error = "failed to download media from last host: download failed with status code 410"
            return neonize.DownloadReturnFunction(Error=error).SerializeToString()
        return neonize.DownloadReturnFunction(Binary=self.files[file.mediaKey]).SerializeToString()

    def _pair_phone(self, _uuid: bytes, body: bytes, _size: int) -> bytes:
        self.phone = neonize.PairPhoneParams.FromString(body).phone
        if len(self.phone) <= 6:
            return neonize.PairPhoneReturnFunction(Error="phone number too short").SerializeToString()
        return neonize.PairPhoneReturnFunction(Code=CODE).SerializeToString()

    def _logout(self, _uuid: bytes) -> bytes:
        if self._errors or not self._connected:
            error = self._errors.pop(0) if self._errors else f"error sending logout request: {NOT_CONNECTED}"
            return error.encode()
        self.linked = self._connected = False
        return b""

    def _get_pnfrom_lid(self, _uuid: bytes, body: bytes, _size: int) -> bytes:
        number = self.numbers.get(neonize.JID.FromString(body).User, "")
        return neonize.GetJIDFromStoreReturnFunction(Jid=build_jid(number, PHONE if number else "")).SerializeToString()


def event(kind: str, **facts: object) -> Proto:
    """An event by its name among neonize's messages."""
    return getattr(neonize, kind)(**facts)


def fill(message: Any) -> Any:
    """Set what Go always sets: the many required fields, to their zero values."""
    for field_ in message.DESCRIPTOR.fields:
        if field_.is_repeated:
            continue
        if field_.message_type:
            if field_.is_required or message.HasField(field_.name):
                getattr(message, field_.name).SetInParent()
                fill(getattr(message, field_.name))
        elif field_.is_required and not message.HasField(field_.name):
            is_enum = field_.type == field_.TYPE_ENUM
            setattr(message, field_.name, field_.enum_type.values[0].number if is_enum else field_.default_value)
    return message


def _text(message: Message) -> str:
    file = next((value for _, value in message.ListFields() if hasattr(value, "caption")), None)
    return str(message.conversation or message.extendedTextMessage.text or (file.caption if file is not None else ""))
