"""A change of config.json before it is saved: what differs, which parts need a restart, what to ask twice about."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from gateway.config.edit import as_text
from gateway.config.editing.hidden import TypedSecret, masked
from gateway.config.problems import KeyPath, dotted
from gateway.config.variables import variable_of
from gateway.domain.conversation.diff import difference, legible
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Change:
    """`text` takes the place of what the file said `before`; `difference` and `shown` hide secrets.

    `sections` are those that differ, each with whether it needs a restart; `delicate` are keys that decide who may do
    what, or what may be spent.
    """

    before: str | None = field(repr=False)
    text: str = field(repr=False)
    shown: str
    difference: str
    sections: Mapping[str, bool]
    delicate: tuple[str, ...]
    typed: tuple[TypedSecret, ...] = ()
    """To be stored before `text` is written, which refers to them."""


def change(before: str | None, old: dict[str, JsonValue], new: dict[str, JsonValue], text: str | None = None) -> Change:
    """The change from one document to another, which is written as `text`, if that is given."""
    keys = _changed(old, new)
    shown = as_text(masked(new))
    sections: dict[str, bool] = {}
    for key in keys:
        sections[str(key[0])] = sections.get(str(key[0]), False) or _needs_restart(key)
    delicate = tuple(dotted(key) for key in keys if _is_delicate(key))
    told = _difference(as_text(masked(old)), shown) if keys else ""
    return Change(before, as_text(new) if text is None else text, shown, told, sections, delicate)


def check_environment(old: dict[str, JsonValue], new: dict[str, JsonValue], environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a key differs that the environment sets, for its change would have no effect."""
    for key in map(dotted, _changed(old, new)):
        if variable := variable_of(key, environ):
            raise ConfigError(
                f"{key}: set by {variable} in the environment, which overrides config.json; change it there"
            )


def _changed(old: JsonValue, new: JsonValue) -> list[KeyPath]:
    """The path of each value that differs."""
    before, after = dict(_values(old)), dict(_values(new))
    paths = [path for path in before | after if before.get(path) != after.get(path)]
    return [path for path in paths if not any(each != path and each[: len(path)] == path for each in paths)]


def _values(value: JsonValue, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield every value that is no object, as JSON, which tells true from 1; and objects without a key."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _values(item, (*path, name))
    else:
        yield path, json.dumps(value)


def _needs_restart(key: KeyPath) -> bool:
    return key[0] == "database" or (key[0] == "web" and key[:2] != ("web", "allowed_hosts"))


def _is_delicate(key: KeyPath) -> bool:
    match key:
        case ("owner" | "budgets", *_) | ("heartbeat", "day_usd") | ("web", "allowed_hosts" | "public_url", *_):
            return True
        case ("channels", _, "access" | "allow" | "groups", *_):
            return True
        case _:  # a whole section of these, replaced by something else
            return len(key) == 1 and key[0] in ("channels", "web", "heartbeat")


def _difference(before: str, after: str) -> str:
    try:
        return legible("\n".join(difference("config.json", before, after).split("\n")[2:]))
    except ToolFailed:
        return "The change is too long to show."
