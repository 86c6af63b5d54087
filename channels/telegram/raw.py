"""Updates before aiogram has read them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from gateway.domain.json import JsonObject

UPDATE_KINDS = ("message", "edited_message", "stopped_message_generation")

Take: TypeAlias = Callable[[Sequence[JsonObject]], Awaitable[None]]
"""Reads updates and has them accepted in order; returning means committed."""


def update_id(raw: JsonObject) -> int:
    """The number of an update, also of one that cannot be read."""
    number = raw.get("update_id")
    return number if isinstance(number, int) else 0
