"""config.json as it goes into an archive: without what is secret, and without what only fits one machine."""

import json
import re

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


def saved_config(text: str, config: Config, *, with_secrets: bool) -> tuple[bytes, tuple[str, ...]]:
    """`text` as it is in the archive, and the keys whose values are not.

    The address of the database is left out: where that is, the machine it is restored on decides. Each secret becomes a
    reference to a variable that is not set, which keeps a gateway from starting with half a configuration, and whose
    name says what is missing.
    """
    raw = parse_json(text)
    database = raw.get("database")
    if isinstance(database, dict):
        database.pop("url", None)
    left_out: list[str] = []
    if not with_secrets:
        raw = _without_secrets(raw, config, left_out)
    return (json.dumps(raw, indent=2, ensure_ascii=False) + "\n").encode(), tuple(left_out)


def _without_secrets(raw: dict[str, JsonValue], config: Config, left_out: list[str]) -> dict[str, JsonValue]:
    mask = SecretMask()
    mask.learn(config)
    for name in config.channels.keys() & channel_names():
        mask.learn(parse_channel(name, config.channels[name], settings_model(name)))

    def cleared(value: JsonValue, path: KeyPath, secret: bool) -> JsonValue:
        if isinstance(value, dict):
            return {key: cleared(item, (*path, key), secret or key in _HOLDERS) for key, item in value.items()}
        if isinstance(value, list):
            return [cleared(item, (*path, index), secret) for index, item in enumerate(value)]
        if not isinstance(value, str) or not value or is_reference(value):
            return value
        name = next(part for part in reversed(path) if isinstance(part, str))  # that of a list stands for all in it
        if not (secret or _NAMED_SO.search(name) or _IN_A_URL.search(value) or mask.text(value) != value):
            return value
        left_out.append(dotted(path))
        return "$env:NOT_IN_BACKUP_" + re.sub(r"\W+", "_", dotted(path), flags=re.ASCII).strip("_").upper()

    return {key: cleared(value, (key,), False) for key, value in raw.items()}
