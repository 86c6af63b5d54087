"""`supaclaw config`: read, check and change config.json."""

import os
from typing import Annotated

from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import argument, print_json
from gateway.config.channels import check_channels
from gateway.config.data.keys import check_unset, save_keys
from gateway.config.editing import config_file
from gateway.config.editing.hidden import HIDDEN, is_named_as_secret, masked, references
from gateway.config.environment import Environment, is_place_chosen
from gateway.config.load import load, parse, variable_of
from gateway.config.model import json_schema
from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import json_or_text
from gateway.logs import SecretMask

Key = Annotated[str, argument("A dotted key, such as models.primary.", "KEY")]
KEPT = "its value is kept as {0}, outside of config.json; the next start encrypts it as the secret {0}"
IN_PLAIN = ", in plain; `supaclaw secrets set NAME` stores it encrypted, and $secret:NAME stands for it here"


def schema() -> None:
    """Print the JSON Schema of config.json."""
    print_json(json_schema())


def validate() -> None:
    """Check config.json."""
    from gateway.app.storage.offline import StoredSecrets

    environment = Environment.read(os.environ)
    check_channels(load(environment.config, os.environ, StoredSecrets(environment, os.environ)))
    echo(f"{environment.config}: {'valid' if environment.config.exists() else 'not there; the defaults are used'}")


def get(key: Key) -> None:
    """Print one setting, or its default. Keys and passwords written in the file are masked."""
    value, path = config_file.get_key(Environment.read(os.environ).config, key, os.environ), tuple(key.split("."))
    if isinstance(value, str) and not is_named_as_secret(path, value):
        echo(SecretMask().text(value))
    elif isinstance(value, str):
        echo(HIDDEN)
    else:
        print_json(masked(value, path))
    if variable := variable_of(key, os.environ):
        echo(f"(set by {variable} in the environment)", error=True)


def set(key: Key, value: Annotated[str, argument("The value as JSON; anything else is a string.", "VALUE")]) -> None:
    """Change one setting. A running gateway applies it at once. An invalid value is refused and not written.

    Keys and tokens are kept outside of config.json, as by `supaclaw init`.
    """
    from gateway.app.storage.offline import StoredSecrets

    environment = Environment.read(os.environ)
    path = environment.config
    if variable := variable_of(key, os.environ):
        raise OwnerMustAct(f"{key} is set by {variable} in the environment, which overrides {path.name}; change that")

    at = tuple(key.split("."))
    given, keys = references(json_or_text(value), at)
    check_unset(os.environ, keys)

    def check_and_keep(text: str) -> None:
        secrets = StoredSecrets(environment, os.environ)
        check_channels(parse(text, {**os.environ, **keys}, secrets, source=path.name))
        for name, secret in keys.items():
            save_keys(environment.data, name.lower(), {name: secret})

    if not is_place_chosen(os.environ):
        path.parent.mkdir(parents=True, exist_ok=True)
    config_file.set_key(path, key, given, check_and_keep)
    echo(f"{key} is set{IN_PLAIN if masked(given, at) != given else ''}")
    for name in keys:
        echo(KEPT.format(name))
