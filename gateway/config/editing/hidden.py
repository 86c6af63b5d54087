"""Secrets in config.json: recognised by key or form, hidden for display, replaced by references when typed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from gateway.config.data.keys import KEY_VALUE
from gateway.config.load import FULL_NAME, NEEDED_FIRST, SECRET, is_reference, usual_name
from gateway.config.problems import dotted
from gateway.domain.errors import ConfigError
from gateway.domain.json import KeyPath, map_texts, value_at
from gateway.domain.people.credentials import CREDENTIAL_SHAPES

HIDDEN = "********"
"""Shown instead of a secret; as input it stands for the stored secret."""

_SECRET_KEY_NAMES = re.compile(r"(token|key|password|passwd|secret|authorization|credential|cookie)s?$", re.IGNORECASE)
_HOLDERS = frozenset({"env", "headers"})
"""Sections, mostly of MCP servers, in which any value may be a credential."""
_IN_A_URL = re.compile(r"[?&#][^=&]*(token|key|password|secret|sig)[^=&]*=[^&]|\bpassword\s*=", re.IGNORECASE)


def is_secret(path: KeyPath, text: str) -> bool:
    """Whether `text` must be hidden; references need not be."""
    if is_reference(text):
        return False
    return is_named_as_secret(path, text) or bool(_IN_A_URL.search(text) or CREDENTIAL_SHAPES.search(text))


def is_named_as_secret(path: KeyPath, text: str) -> bool:
    """Whether `text` is a secret according to its key."""
    names = [part for part in path if isinstance(part, str)]  # the name of a list counts for its items
    named = not _HOLDERS.isdisjoint(names) or bool(_SECRET_KEY_NAMES.search(names[-1]))
    return named and bool(text) and not is_reference(text)


def masked(value: JsonValue, path: KeyPath = ()) -> JsonValue:
    """`value` with hidden secrets, for display."""
    return map_texts(value, lambda at, text: HIDDEN if is_secret(at, text) else text, path)


@dataclass(frozen=True, slots=True)
class TypedSecret:
    """A secret that was typed in; with `rotates` it replaces the one that the key refers to already."""

    name: str
    value: str = field(repr=False)
    rotates: bool


def unmasked(draft: JsonValue, stored: JsonValue, env_file: str) -> tuple[JsonValue, tuple[TypedSecret, ...]]:
    """`draft` with the stored secrets instead of `HIDDEN`, and with references instead of typed ones.

    Raises `ConfigError` for a secret in a key that isn't for secrets, or that is needed before secrets can be read.
    """
    typed: dict[str, TypedSecret] = {}

    def restore(path: KeyPath, text: str) -> str:
        old = value_at(stored, path)
        if isinstance(old, str) and is_secret(path, old) and text in (HIDDEN, old):
            return old
        if text != HIDDEN and not is_secret(path, text):
            return text
        if text == HIDDEN or not is_named_as_secret(path, text) or path[0] in NEEDED_FIRST:
            raise ConfigError(
                f"{dotted(path)}: a secret isn't saved from here; write {usual_name(path)}=… into {env_file} and "
                "restart, or enter a reference such as $secret:NAME"
            )
        rotates = isinstance(old, str) and old.startswith(SECRET)
        name = str(old).removeprefix(SECRET) if rotates else _secret_name(path)
        if typed.setdefault(name, TypedSecret(name, text, rotates)).value != text:
            raise ConfigError(f"{dotted(path)}: two different values for the secret {name}; enter one of them first")
        return f"{SECRET}{name}"

    return map_texts(draft, restore), tuple(typed.values())


def references(value: JsonValue, path: KeyPath) -> tuple[JsonValue, Mapping[str, str]]:
    """`value`, meant for the key at `path`, with `$env:NAME` instead of its secrets, and those by their names.

    What is needed before secrets can be read stays, and so does what no file of keys can hold.
    """
    found: dict[str, str] = {}

    def moved(at: KeyPath, text: str) -> str:
        if at[0] in NEEDED_FIRST or not is_named_as_secret(at, text) or not KEY_VALUE.fullmatch(text):
            return text
        name = _secret_name(at)
        found[name] = text
        return f"$env:{name}"

    return map_texts(value, moved, path), found


def _secret_name(path: KeyPath) -> str:
    return re.sub(r"\W+|__+", "_", usual_name(path).removeprefix(FULL_NAME), flags=re.ASCII)[:64]
