"""Sending messages and files to the person's own chats."""

from dataclasses import dataclass

from pydantic import BaseModel, Field

from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, ToolClass
from gateway.tools import Post, Posted, Services, declared, tool

MAX_MESSAGE = 12_000
MAX_CAPTION = 900

_TO = Field(default=None, max_length=64, description="Channel, e.g. web; default: where they wrote last")


class _Arguments(BaseModel, extra="forbid", frozen=True, str_strip_whitespace=True, defer_build=True):
    """An empty text is an error, not a missing one."""


class MessageArguments(_Arguments):
    """Arguments of send_message."""

    text: str = Field(min_length=1, max_length=MAX_MESSAGE, description="Markdown")
    to: str | None = _TO


class FileArguments(_Arguments):
    """Arguments of send_file."""

    path: str
    caption: str = Field(default="", max_length=MAX_CAPTION)
    to: str | None = _TO


@dataclass(frozen=True, slots=True)
class _Messages:
    post: Post

    @tool("Sending: {text}", "Sent: {text}", ToolClass.WRITE, effect=Effect.ONCE)
    async def send_message(self, arguments: MessageArguments, caller: Caller) -> Labelled:
        """Send a message to one of the user's own chats. Your answer reaches the chat it belongs to without this."""
        return _receipt(await self.post(arguments.text, arguments.to, None, caller))

    @tool("Sending {path}", "Sent {path}", ToolClass.WRITE, effect=Effect.ONCE)
    async def send_file(self, arguments: FileArguments, caller: Caller) -> Labelled:
        """Send a workspace file to one of the user's own chats."""
        return _receipt(await self.post(arguments.caption, arguments.to, arguments.path, caller))


def _receipt(posted: Posted) -> Labelled:
    return Labelled.own({"ok": True, "to": posted.channel, "message_id": posted.message_id})


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tools that send to the person's other chats."""
    return declared(_Messages(services.post))
