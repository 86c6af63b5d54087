"""`supaclaw backup` and `supaclaw restore`: save everything to a file, and restore it."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.connections.database import run_quietly
from gateway.cli.storage.secrets import recover_secrets
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import argument, ask_secret_text, flag
from gateway.config.data.keys import has_master_key
from gateway.config.environment import Environment
from gateway.config.load import load_early, parse, parse_json, read
from gateway.config.model import Config
from gateway.domain.text.texts import size_text
from gateway.secrets.encryption import Keyring, MasterKey
from gateway.secrets.facts import MAX_VALUE

File = Annotated[Path, argument("The backup, such as supaclaw.tar.gz.", "FILE")]
_SAVED = "The backup: a file, or in the bucket of backup.to, which names the newest."


def saved_place(text: str) -> str:
    """The path of a file that exists, or an address in a bucket; raises `BadParameter`."""
    if "://" not in text and not Path(text).is_file():
        raise typer.BadParameter(f"file {text!r} does not exist.")
    return text


Saved = Annotated[str, argument(_SAVED, "FILE", parser=saved_place)]


def backup(
    file: File,
    force: Annotated[bool, flag("Overwrite FILE if it exists.", "--force")] = False,
    with_secrets: Annotated[
        bool,
        flag("Include keys in config.json, the gateway's own but the master key, and logins.", "--with-secrets"),
    ] = False,
) -> None:
    """Save everything to one file. The gateway may keep running."""
    from gateway.app.storage.backup import back_up
    from gateway.app.storage.database import reach

    environment = Environment.read(os.environ)
    config = load_early(environment, os.environ)
    reached = reach(environment, config, mine=False)
    saving = back_up(environment, config, file, reached, force=force, with_secrets=with_secrets, environ=os.environ)
    saved = run_quietly(saving)
    echo(f"{file}: {saved}, {size_text(file.stat().st_size)}")
    if saved.skipped:
        kinds = "links that point outside their folder, pipes, sockets and files that are mostly holes"
        echo(f"{saved.skipped} entries were skipped: {kinds}")
    if saved.left_out:
        echo(f"secrets not included: {', '.join(saved.left_out)}")
    if saved.replaced:
        echo(f"values of secrets were replaced by their names in {saved.replaced} lines")
    if saved.has_secrets:
        echo("the master key of the secrets is not included: a restore elsewhere needs the recovery key")
    if with_secrets:
        echo("it contains secrets: keep it where only you can read it")


def restore(
    file: Saved,
    verify: Annotated[bool, flag("Only check that FILE is intact; change nothing.", "--verify", "--dry-run")] = False,
    recovery_key: Annotated[
        bool, flag("Ask for the recovery key of its secrets, or read it from stdin.", "--recovery-key")
    ] = False,
) -> None:
    """Restore a backup into an empty data folder."""
    from gateway.app.storage.backup import record_backup
    from gateway.app.storage.database import reach
    from gateway.app.storage.restore import restore as put_back
    from gateway.app.storage.restore import unpack
    from gateway.app.storage.scheduled import fetched

    environment = Environment.read(os.environ)
    keys = (MasterKey.parse(ask_secret_text("Recovery key", MAX_VALUE)),) if recovery_key else ()
    with fetched(environment, file, Keyring(keys) if keys else None) as archive:
        if verify:
            echo(f"{file} is intact: {unpack(archive, None)}")
            return
        config = _only_database(environment.config)
        saved, path = run_quietly(put_back(environment, config, archive, reach(environment, config, mine=True)))
    record_backup(environment.data, file if "://" in file else Path(file).resolve(), saved.created)
    echo(f"restored {saved}")
    if path not in {None, environment.config}:
        echo(f"{environment.config} already exists and was kept; the saved one is {path}")
    if saved.left_out:
        echo(f"put these into {path} before you start: {', '.join(saved.left_out)}")
    if keys:
        recover_secrets(keys[0].text)
    elif saved.has_secrets and not has_master_key(environment.data, os.environ):
        echo("it has secrets: enter the recovery key with `supaclaw secrets recover` before you start")
    for name in saved.logins:
        anew = f"`supaclaw channel logout {name}`, then `supaclaw channel login {name}`"
        echo(f"{name} is linked by the keys in the backup; if the old gateway ran after it, link it again: {anew}")


def _only_database(path: Path) -> Config:
    """The database settings alone: the rest of config.json may refer to things that are not restored yet."""
    raw = parse_json(read(path) or "{}", path.name)
    return parse(json.dumps({"database": raw.get("database") or {}}), os.environ, source=path.name)
