"""Reads or changes one key of config.json, and leaves the rest as it is."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from pydantic import JsonValue

from gateway.config.data.files import replace_edited
from gateway.config.load import overruled, parse_json, read
from gateway.config.model import Config
from gateway.config.problems import dotted, known_keys
from gateway.domain.errors import ConfigError, explained
from gateway.domain.json import value_at


def get_key(path: Path, key: str, environ: Mapping[str, str]) -> JsonValue:
    """The value in the environment or the file, with references unresolved, else the default.

    Raises `ConfigError` for an unknown key.
    """
    written = value_at(overruled(parse_json(read(path) or "{}", path.name), environ), tuple(key.split(".")))
    default = value_at(Config().model_dump(mode="json"), tuple(key.split(".")))
    if written is not None:
        return _merged(default, written)
    known = [dotted(path) for path in known_keys(Config)]
    if default is None and key not in known:
        close = get_close_matches(key, known, n=1) or ["`supaclaw config schema`"]
        raise ConfigError(f"{key}: there is no such key; see {close[0]}")
    return default


def set_key(path: Path, key: str, value: JsonValue, check: Callable[[str], object]) -> None:
    """Write `value` to the dotted `key`; first, `check` gets the new text and raises `ConfigError` to refuse it."""
    before = read(path)
    raw = parse_json(before or "{}", path.name)
    section, name = section_of(raw, tuple(key.split(".")))
    section[name] = value
    replace_text(path, as_text(raw), before, check)


def section_of(raw: dict[str, JsonValue], path: tuple[str, ...]) -> tuple[dict[str, JsonValue], str]:
    """The object that has the key, created if needed, and the key's name in it; raises `ConfigError`."""
    *parents, name = path
    section = raw
    for depth, parent in enumerate(parents, start=1):
        inner = section.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{dotted(path)}: {dotted(path[:depth])} is not an object, so nothing can be set in it")
        section = inner
    return section, name


def replace_text(path: Path, text: str, before: str | None, check: Callable[[str], object]) -> None:
    """Write the whole file, if `check` accepts the text and the file still says what it said `before`.

    Raises `ConfigError`, as `Unwritable` if this process may not write there.
    """
    check(text)
    if read(path) != before:
        raise ConfigError(f"{path.name} was changed meanwhile; nothing was written. Reload and try again")
    with explained(f"{path.resolve()}: cannot be written", Unwritable):
        replace_edited(path.resolve(), text.encode())


def as_text(raw: JsonValue) -> str:
    """How a document is written."""
    return json.dumps(raw, indent=2, ensure_ascii=False) + "\n"


class Unwritable(ConfigError):
    """This process may not write config.json; a person has to."""


def _merged(default: JsonValue, written: JsonValue) -> JsonValue:
    if not isinstance(default, dict) or not isinstance(written, dict):
        return written
    return default | {key: _merged(default.get(key), value) for key, value in written.items()}
