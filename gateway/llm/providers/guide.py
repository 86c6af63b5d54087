"""Answers while no model is connected: says so, and how to connect one. It never pretends to be a model."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    PromptMessage,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from gateway.domain.settings import Params
from gateway.domain.zones import is_zone, zone
from gateway.llm.catalog import VENDORS, Vendor
from gateway.llm.endpoint import Endpoint
from gateway.llm.protocol import reminders
from gateway.llm.provider import Provider, ProviderEvent, ProviderReply

_COMMANDS = "Commands work without a model: `/help`, `/status`, `/model`."
_REMINDERS = " Reminders do too: remind me tomorrow at 9 to call Ada."
_NOTHING = "No model is connected yet."
_OLLAMA_MODEL = "qwen3"
_GREETING = re.compile(
    r"\s*(hi|hello|hey|yo|good (morning|afternoon|evening)|hallo|hola|salut|/start)\b", re.IGNORECASE
)
_CONNECT = re.compile(r"\b(connect|key|model|set ?up|configure|install|provider)\b", re.IGNORECASE)
_CHOICES = tuple(vendor for vendor in VENDORS if vendor.model or vendor.prefix == "ollama")
_STAMP = re.compile(r"^\[(20\d\d-\d\d-\d\d \d\d:\d\d) UTC[^\]\n]*\] ", re.MULTILINE | re.ASCII)
_ZONE = re.compile(r"^You are talking with .*\. Their time zone is ([\w/+-]+)\.$", re.MULTILINE)
_TASK = re.compile(r"Scheduled task \d+: ")
_LATE = re.compile(r"^Planned for: (.+)\nLate: ", re.MULTILINE)
_NAMES = {"claude": "anthropic", "gpt": "openai", "chatgpt": "openai", "google": "gemini", "grok": "xai"}


def build(_: Endpoint) -> Provider:
    """The guide needs no endpoint."""
    return Guide()


class Guide:
    """Deterministic: the same question always gets the same answer."""

    async def stream(self, _model: str, prompt: Prompt, _params: Params, /) -> AsyncGenerator[ProviderEvent, None]:
        """Answer the newest user message, and report the results of the calls before it."""
        reply = _reply(prompt)
        if reply.text:
            yield TextDelta(reply.text)
        yield reply

    async def warm(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to close."""


def _reply(prompt: Prompt) -> ProviderReply:
    new = _since_the_last_reply(prompt.messages)
    texts = [reminders.describe_result(message.text) for message in new if isinstance(message, ToolMessage)]
    calls: tuple[ToolCall, ...] = ()
    latest = next((message.text for message in reversed(new) if isinstance(message, UserMessage)), None)
    if latest is not None or not texts:
        *_, stamp, text = ("", *_STAMP.split(latest or ""))
        sent_at = _local(stamp, prompt) if _can_remind(prompt) else None
        arguments = reminders.parse_request(text, sent_at) if sent_at else None
        if arguments:
            calls = (ToolCall("", "cron", json.dumps(arguments)),)
        else:
            texts.append(_without_a_call(text, prompt))
    return ProviderReply("\n\n".join(texts), calls, Usage())


def _since_the_last_reply(messages: Sequence[PromptMessage]) -> Sequence[PromptMessage]:
    last = max((place for place, each in enumerate(messages) if isinstance(each, AssistantMessage)), default=-1)
    return messages[last + 1 :]


def _without_a_call(text: str, prompt: Prompt) -> str:
    if _TASK.match(text):
        *_, prompted = text.split("\n\n", 2)
        late = _LATE.search(text)
        return f"Reminder{f' of {late[1]}' if late else ''}: {prompted.removeprefix(reminders.TASK)}"
    if _can_remind(prompt) and reminders.about_reminders(text):
        return f"{_NOTHING} {reminders.FORMS}"
    return f"{answer(text)}{_REMINDERS if _can_remind(prompt) else ''}"


def _can_remind(prompt: Prompt) -> bool:
    return any(tool.name == "cron" for tool in prompt.tools)


def _local(stamp: str, prompt: Prompt) -> datetime | None:
    """When a message was sent, in its sender's zone, or UTC if that is unknown; None without a timestamp."""
    try:
        sent_at = datetime.strptime(stamp, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    except ValueError:  # it only looks like a timestamp
        return None
    standing = "\n".join(message.text for message in prompt.messages if isinstance(message, SystemMessage))
    named = [name for name in _ZONE.findall(standing) if is_zone(name)]
    return sent_at.astimezone(zone(named[-1])) if named else sent_at


def answer(message: str) -> str:
    """The guide's answer to a message."""
    words = {_NAMES.get(word, word) for word in re.findall(r"[a-z]+", message.lower())}
    named = [vendor for vendor in _CHOICES if vendor.prefix in words]
    steps = "\n\n".join(map(_steps, named)) if named else _all_steps()
    return f"{_opening(message)}\n\n{steps}\n\n{_COMMANDS}"


def _opening(message: str) -> str:
    if _CONNECT.search(message):
        return _NOTHING
    if _GREETING.match(message):
        return f"Hello! {_NOTHING} Until then I can only guide you."
    return f"{_NOTHING} Your message is stored, but I cannot answer it."


def _all_steps() -> str:
    keys = "\n".join(f"- {vendor.title}: `{vendor.keys[0]}` ({vendor.keys_page})" for vendor in _CHOICES if vendor.keys)
    return (
        "To connect one, paste its key under **Setup** on the page or into `supaclaw init`. Or set it in the "
        "environment and restart:\n"
        f"{keys}\n- Ollama, on your own machine: `ollama pull {_OLLAMA_MODEL}`, no key needed\n\n"
        "Or put the key into `config.json`, which takes effect at once. "
        'Ask me "how do I connect Anthropic?" for the line.'
    )


def _steps(vendor: Vendor) -> str:
    if not vendor.keys:
        return (
            f"**{vendor.title}**: run `ollama pull {_OLLAMA_MODEL}`, then restart me, or put this into `config.json`:\n"
            f'```json\n"models": {{"primary": "ollama/{_OLLAMA_MODEL}"}}\n```'
        )
    key = vendor.keys[0]
    return (
        f"**{vendor.title}**: get a key at {vendor.keys_page}, set `{key}=…` in the environment and restart me, "
        "or put it into `config.json`:\n"
        f'```json\n"models": {{"providers": {{"{vendor.prefix}": {{"api_key": "…"}}}}}}\n```'
    )
