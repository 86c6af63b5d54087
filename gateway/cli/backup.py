"""`supaclaw backup` and `supaclaw restore`."""

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.config.environment import Environment
from gateway.config.load import load, parse, parse_json, read
from gateway.config.model import Config
from gateway.logs import SecretMask, logging_to

if TYPE_CHECKING:
    from gateway.app.archive.manifest import Manifest

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup, such as supaclaw.tar.gz.")]


def backup(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Keep the keys in config.json, and the gateway's own.")
    ] = False,
) -> None:
    """Save everything into one file while the gateway works."""
    from gateway.app.archive import back_up

    environment = Environment.read(os.environ)
    config = load(environment.config, os.environ)
    with logging_to(None, SecretMask(), level=logging.WARNING):
        done = asyncio.run(back_up(environment, config, file, force=force, with_secrets=with_secrets, say=Progress()))
    print(f"{file}: {_contents(done.manifest)}, {done.size / 1e6:.1f} MB")
    if done.skipped:
        print(f"{done.skipped} entries were skipped: links that lead out of their folder, pipes and sockets")
    if done.manifest.left_out:
        print(f"secrets that are not in it: {', '.join(done.manifest.left_out)}")
    if with_secrets:
        print("it holds secrets: keep it where only you can read it")


def restore(
    file: File,
    verify: Annotated[
        bool, typer.Option("--verify", "--dry-run", help="Only check that FILE is whole; change nothing.")
    ] = False,
) -> None:
    """Put a backup back into an empty place."""
    from gateway.app.archive import examine
    from gateway.app.archive import restore as put_back

    environment = Environment.read(os.environ)
    if verify:
        manifest = examine(file)
        print(f"{file} is whole: {_contents(manifest)}, saved {manifest.created:%Y-%m-%d %H:%M} UTC")
        return
    config = _only_database(environment.config)
    with logging_to(None, SecretMask(), level=logging.WARNING):
        done = asyncio.run(put_back(environment, config, file, Progress()))
    print(f"restored {_contents(done.manifest)}, saved {done.manifest.created:%Y-%m-%d %H:%M} UTC")
    if done.doubts:
        print(f"{done.doubts} chats are told that an answer may be missing")
    if done.config is not None and done.config != environment.config:
        print(f"{environment.config} was there already and stays; the saved one is {done.config}")
    if done.config is not None and done.manifest.left_out:
        print(f"put these into {done.config} before you start: {', '.join(done.manifest.left_out)}")


def _only_database(path: Path) -> Config:
    """Where to restore to; the rest of config.json may lack what is about to be restored."""
    raw = parse_json(read(path) or "{}", path.name)
    return parse(json.dumps({"database": raw.get("database") or {}}), os.environ, source=path.name)


class Progress:
    """Says on stderr, at most once a second, what is being done; nothing about what is done within a second."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say it, if somebody has been waiting."""
        now = time.monotonic()
        if now - self._said >= 1:
            self._said = now
            print(text, file=sys.stderr, flush=True)


def _contents(manifest: "Manifest") -> str:
    return f"{manifest.rows} rows and {manifest.files} files"
