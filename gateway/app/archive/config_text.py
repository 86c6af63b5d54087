"""config.json as it goes into an archive: without what is secret, and without what only fits one machine."""

import json
import re

from pydantic import JsonValue

from gateway.config.channels import channel_names, parse_channel, settings_model
from gateway.config.editing.hidden import is_secret, map_texts
from gateway.config.load import is_reference, parse_json
from gateway.config.model import Config
from gateway.config.problems import KeyPath, dotted
from gateway.logs import SecretMask


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

    def cleared(path: KeyPath, text: str) -> str:
        if is_reference(text) or not (is_secret(path, text) or mask.text(text) != text):
            return text
        left_out.append(dotted(path))
        return "$env:NOT_IN_BACKUP_" + re.sub(r"\W+", "_", dotted(path), flags=re.ASCII).strip("_").upper()

    return {key: map_texts(value, cleared, (key,)) for key, value in raw.items()}
