"""Answers when no model is connected: says so, and how to connect one. Not a model, and never pretends to be one."""

import re
from collections.abc import AsyncGenerator

from gateway.domain.model import Prompt, TextDelta, Usage, UserMessage
from gateway.domain.settings import Params
from gateway.llm.catalog import VENDORS, Vendor
from gateway.llm.endpoint import Endpoint
from gateway.llm.provider import Provider, ProviderEvent, ProviderReply

_COMMANDS = "Commands work without a model: `/help`, `/status`, `/model`."
_NOTHING = "No model is connected yet."
_OLLAMA_MODEL = "qwen3"
_GREETING = re.compile(
    r"\s*(hi|hello|hey|yo|good (morning|afternoon|evening)|hallo|hola|salut|/start)\b", re.IGNORECASE
)
_CONNECT = re.compile(r"\b(connect|key|model|set ?up|configure|install|provider)\b", re.IGNORECASE)
_CHOICES = tuple(vendor for vendor in VENDORS if vendor.model or vendor.prefix == "ollama")
_NAMES = {"claude": "anthropic", "gpt": "openai", "chatgpt": "openai", "google": "gemini", "grok": "xai"}


def build(_: Endpoint) -> Provider:
    """The guide needs no endpoint."""
    return Guide()


class Guide:
    """The same question always gets the same answer."""

    async def stream(self, _model: str, prompt: Prompt, _params: Params, /) -> AsyncGenerator[ProviderEvent, None]:
        """The answer to the newest user message."""
        said = next((message.text for message in reversed(prompt.messages) if isinstance(message, UserMessage)), "")
        text = answer(said)
        yield TextDelta(text)
        yield ProviderReply(text, usage=Usage())

    async def warm(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to let go of."""


def answer(said: str) -> str:
    """What to say to a message."""
    named = [vendor for vendor in _CHOICES if vendor.prefix in _words(said)]
    steps = "\n\n".join(map(_steps, named)) if named else _all_steps()
    return f"{_opening(said)}\n\n{steps}\n\n{_COMMANDS}"


def _opening(said: str) -> str:
    if _CONNECT.search(said):
        return _NOTHING
    if _GREETING.match(said):
        return f"Hello! {_NOTHING} Until then I can only guide you."
    return f"{_NOTHING} Your message is stored, but I cannot answer it."


def _words(said: str) -> set[str]:
    words = re.findall(r"[a-z]+", said.lower())
    return {_NAMES.get(word, word) for word in words}


def _all_steps() -> str:
    keys = "\n".join(f"- {vendor.title}: `{vendor.keys[0]}` ({vendor.keys_page})" for vendor in _CHOICES if vendor.keys)
    return (
        "To connect one, set its key in the environment and restart:\n"
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
