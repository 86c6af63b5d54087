"""Secrets written out in config.json: found by their key or their look, hidden for display, never typed in."""

import re
from collections.abc import Callable

from pydantic import JsonValue

from gateway.config.problems import KeyPath, dotted
from gateway.config.references import is_reference
from gateway.config.variables import usual_name
from gateway.domain.credentials import SHAPES
from gateway.domain.errors import ConfigError

HIDDEN = "********"
"""Is shown instead of a secret; sent back, it means the one that is stored at this place."""

_NAMES = re.compile(r"(token|key|password|passwd|secret|authorization|credential|cookie)s?$", re.IGNORECASE)
_HOLDERS = frozenset({"env", "headers"})
"""Sections, of MCP servers above all, in which any value may be a credential."""
_IN_A_URL = re.compile(r"[?&#][^=&]*(token|key|password|secret|sig)[^=&]*=[^&]|\bpassword\s*=", re.IGNORECASE)


def is_secret(path: KeyPath, text: str) -> bool:
    """Whether `text` must not be shown; a reference may be."""
    if is_reference(text):
        return False
    return is_named_so(path, text) or bool(_IN_A_URL.search(text) or SHAPES.search(text))


def is_named_so(path: KeyPath, text: str) -> bool:
    """Whether the key says that `text` is one, whatever it looks like."""
    names = [part for part in path if isinstance(part, str)]  # the name of a list stands for all in it
    named = not _HOLDERS.isdisjoint(names) or bool(_NAMES.search(names[-1]))
    return named and bool(text) and not is_reference(text)


def each_text(value: JsonValue, change: Callable[[KeyPath, str], str], path: KeyPath = ()) -> JsonValue:
    """`value` with every text in it replaced by what `change` makes of it."""
    match value:
        case dict():
            return {key: each_text(item, change, (*path, key)) for key, item in value.items()}
        case list():
            return [each_text(item, change, (*path, index)) for index, item in enumerate(value)]
        case str():
            return change(path, value)
        case _:
            return value


def masked(value: JsonValue, path: KeyPath = ()) -> JsonValue:
    """`value` for display."""
    return each_text(value, lambda at, text: HIDDEN if is_secret(at, text) else text, path)


def unmasked(draft: JsonValue, stored: JsonValue, env_file: str) -> JsonValue:
    """`draft` with the stored secrets in their places; raises `ConfigError` for one that was typed in."""

    def put_back(path: KeyPath, text: str) -> str:
        old = at(stored, path)
        if isinstance(old, str) and is_secret(path, old) and text in (HIDDEN, old):
            return old
        if text == HIDDEN or is_secret(path, text):
            name = usual_name(path)
            raise ConfigError(
                f"{dotted(path)}: a secret isn't saved from here; write {name}=… into {env_file} and restart, "
                "or enter a reference such as $env:NAME"
            )
        return text

    return each_text(draft, put_back)


def at(value: JsonValue, path: KeyPath) -> JsonValue:
    """What is at `path`; None if there is nothing."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value
