"""config.json as it goes into an archive: without what is secret, and without what only fits one machine."""

import json
import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from gateway.config.channels import channel_names, parse_channel, settings_model
from gateway.config.load import parse_json
from gateway.config.model import Config
from gateway.config.problems import KeyPath, dotted
from gateway.config.references import is_reference
from gateway.logs import SecretMask

_NAMED_SO = re.compile(r"(token|key|password|passwd|secret|authorization|credential|cookie)s?$", re.IGNORECASE)
_HOLDERS = frozenset({"env", "headers"})
"""Sections, of MCP servers above all, in which any value may be a credential."""
_IN_A_URL = re.compile(r"[?&#][^=&]*(token|key|password|secret|sig)[^=&]*=[^&]", re.IGNORECASE)


def placed_anywhere(text: str) -> dict[str, JsonValue]:
    """config.json without the address of the database: where that is, the machine it is restored on decides."""
    raw = parse_json(text)
    database = raw.get("database")
    if isinstance(database, dict):
        database.pop("url", None)
    return raw


def without_secrets(raw: Mapping[str, JsonValue], config: Config) -> tuple[dict[str, JsonValue], list[str]]:
    """`raw` with a reference in place of each secret, and the keys whose values are left out.

    A reference to a variable that is not set keeps a gateway from starting with half a configuration, and its name
    says what is missing.
    """
    mask = SecretMask()
    mask.learn(config)
    for settings in _channel_settings(config):
        mask.learn(settings)
    left_out: list[str] = []

    def cleared(value: JsonValue, path: KeyPath, secret: bool) -> JsonValue:
        if isinstance(value, dict):
            return {key: cleared(item, (*path, key), secret or key in _HOLDERS) for key, item in value.items()}
        if isinstance(value, list):
            return [cleared(item, (*path, index), secret) for index, item in enumerate(value)]
        if not isinstance(value, str) or not value or is_reference(value):
            return value
        if not (secret or _NAMED_SO.search(_name(path)) or _IN_A_URL.search(value) or mask.text(value) != value):
            return value
        left_out.append(dotted(path))
        return f"$env:{_variable(path)}"

    return {key: cleared(value, (key,), False) for key, value in raw.items()}, left_out


def as_text(raw: Mapping[str, JsonValue]) -> bytes:
    """As `supaclaw config set` would write it."""
    return (json.dumps(raw, indent=2, ensure_ascii=False) + "\n").encode()


def _channel_settings(config: Config) -> Iterator[object]:
    known = channel_names()
    for name, section in config.channels.items():
        if name in known:
            yield parse_channel(name, section, settings_model(name))


def _name(path: KeyPath) -> str:
    """The nearest name above a value; that of a list stands for all in it."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _variable(path: KeyPath) -> str:
    return "NOT_IN_BACKUP_" + re.sub(r"\W+", "_", dotted(path), flags=re.ASCII).strip("_").upper()
