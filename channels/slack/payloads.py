"""Slack's events and answers: the fields that the channel uses."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError, WrapValidator, model_validator

from channels.slack.content import beside

SlackId = Annotated[str, Field(pattern=r"^\w{1,64}$")]
Timestamp = Annotated[str, Field(pattern=r"^\d{1,11}\.\d{1,9}$")]
"""Seconds and a counter: the id of a message within its chat."""
ShortText = Annotated[str, Field(max_length=1000)]

EVENT_TYPE = "supaclaw"
"""The type of the metadata of the app's own messages."""
MESSAGE_SUBTYPES = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
"""The subtypes of messages that a person or a bot wrote; Slack itself writes the others."""
UNREADABLE = "[something that isn't readable here; say it in words, or send it as a file]"


class Payload(BaseModel, frozen=True, extra="ignore", coerce_numbers_to_str=True):
    """Frozen; unknown fields are ignored, null counts as missing, and a number in the place of a text as its digits."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, told: object) -> object:
        return {name: value for name, value in told.items() if value is not None} if isinstance(told, dict) else told


class Envelope(Payload):
    """One delivery over the socket; Slack repeats it until its id is acknowledged."""

    envelope_id: Annotated[str, Field(min_length=1, max_length=200)]
    payload: dict[str, Any]


class File(Payload):
    """A file; `shares` lists the messages that show it."""

    id: SlackId
    name: str = ""
    mimetype: str = ""
    size: Annotated[int, Field(ge=0)] | None = None
    mode: str = ""
    is_external: bool = False
    url_private_download: str | None = None
    kept_at: str = Field("", validation_alias=AliasChoices("external_url", "url_private"))
    """Its address, if it is external."""
    transcript: str = Field("", validation_alias=AliasPath("transcription", "preview", "content"))
    """The beginning of what Slack heard in it."""
    shares: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Whether the file was deleted, or is hidden by the limit of a free workspace."""
        return self.mode in {"tombstone", "hidden_by_limit"}


class Quote(Payload, frozen=True, extra="allow"):
    """A legacy attachment: a forwarded message, a preview, or what an app shows; its further fields are kept."""

    text: str = ""
    fallback: str = ""
    author_name: str = ""
    is_share: bool = False
    is_msg_unfurl: bool = False
    files: tuple[File, ...] = ()

    @property
    def whole(self) -> str:
        """All that it says, in markup; the fallback of one that says nothing."""
        further = {name: value for name, value in (self.model_extra or {}).items() if name != "message_blocks"}
        more = (*([] if self.text else [(self.model_extra or {}).get("message_blocks")]), further)
        author = "" if self.is_share or self.is_msg_unfurl else self.author_name
        return "\n".join(filter(None, (author, self.text, beside(self.text, more)))) or self.fallback or "[picture]"


def _or_unreadable(told: object, read: Callable[[object], Quote]) -> Quote:
    """The attachment, or a note in place of one that can't be read, so that the message stays."""
    try:
        return read(told)
    except ValidationError:
        return Quote(text=UNREADABLE)


class Message(Payload):
    """A message, in an event or in the history; `edited_at` is when a person changed the text."""

    ts: Timestamp
    subtype: str | None = None
    user: SlackId | None = None
    bot_id: SlackId | None = None
    text: str = ""
    thread_ts: Timestamp | None = None
    edited_at: Timestamp | None = Field(None, validation_alias=AliasPath("edited", "ts"))
    files: tuple[File, ...] = ()
    attachments: tuple[Annotated[Quote, WrapValidator(_or_unreadable)], ...] = ()
    blocks: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def whole(self) -> str:
        """All that it says, in markup: text, blocks, attachments, and the names of its files."""
        files = (f"[file {file.name or 'without a name'}]" for file in self.files)
        more = (beside(self.text, self.blocks), *(quote.whole for quote in self.attachments), *files)
        return "\n".join(filter(None, (self.text, *more))) or UNREADABLE * bool(self.blocks)

    @property
    def key(self) -> str | None:
        """The key that the channel sent it with; None for messages of others and for unfinished ones."""
        if self.metadata.get("event_type") != EVENT_TYPE:
            return None
        return str(self.metadata.get("event_payload", {}).get("key"))


class MessageEvent(Message):
    """`message` and `app_mention`; with the subtype "message_changed" the content is in `message`.

    With "message_deleted" the old content is in `previous_message`.
    """

    channel: SlackId
    channel_type: str = ""
    message: Message | None = None
    previous_message: Message | None = None


class Action(Payload):
    """A person typed `/claw …`, or pressed a button, in the thread that its message belongs to."""

    command: str = ""
    text: str = Field(validation_alias=AliasChoices("text", AliasPath("actions", 0, "value")))
    trigger_id: ShortText
    user_id: SlackId = Field(validation_alias=AliasChoices("user_id", AliasPath("user", "id")))
    user_name: ShortText | None = Field(None, validation_alias=AliasChoices("user_name", AliasPath("user", "username")))
    channel_id: SlackId = Field(validation_alias=AliasChoices("channel_id", AliasPath("container", "channel_id")))
    channel_name: ShortText | None = Field(
        None, validation_alias=AliasChoices("channel_name", AliasPath("channel", "name"))
    )
    thread_ts: Timestamp | None = Field(
        None, validation_alias=AliasChoices(AliasPath("container", "thread_ts"), AliasPath("message", "thread_ts"))
    )


class AppAccount(Payload):
    """The app itself (`auth.test`)."""

    team_id: SlackId
    user_id: SlackId
    user: ShortText = ""
    bot_id: SlackId | None = None

    def wrote(self, message: Message) -> bool:
        """Whether the app wrote this message."""
        return message.user == self.user_id or (message.bot_id is not None and message.bot_id == self.bot_id)


class Posted(Payload):
    """A posted message, by its id."""

    ts: Timestamp


class Page(Payload):
    """A page of the history."""

    messages: tuple[Message, ...]
    next_cursor: str | None = Field(None, validation_alias=AliasPath("response_metadata", "next_cursor"))


class Upload(Payload):
    """The upload address of a new file."""

    upload_url: str
    file_id: SlackId


class Socket(Payload):
    """The address of a websocket, for one connection."""

    url: str = Field(pattern=r"^wss?://\S+$")


class UserNames(Payload):
    """The names of a person, and their time zone (`users.info`)."""

    display_name: str | None = Field(None, validation_alias=AliasPath("user", "profile", "display_name"))
    real_name: str | None = Field(None, validation_alias=AliasPath("user", "profile", "real_name"))
    name: str | None = Field(None, validation_alias=AliasPath("user", "name"))
    zone: str | None = Field(None, validation_alias=AliasPath("user", "tz"))


class FileAnswer(Payload):
    """`files.info`."""

    file: File
