"""Where a backup comes from and where it goes to: the database as it is, and room for what is restored."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.config.environment import Environment
from gateway.config.instance import holder
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.store.pool import Database
from gateway.store.postgres import EmbeddedPostgres

_MARK = "restore.unfinished"
_HARMLESS = frozenset({_MARK, "gateway.pid", "lost+found"})


@asynccontextmanager
async def reached(environment: Environment, config: Config) -> AsyncIterator[Database]:
    """The database, not migrated; an embedded server that did not run before is stopped again."""
    if (url := config.database.url) is not None:
        async with await Database.connect(url.get_secret_value(), size=2) as database:
            yield database
        return
    server = EmbeddedPostgres(environment.data)
    found_running = server.is_running
    dsn = await server.start()
    try:
        async with await Database.connect(dsn, size=2) as database:
            yield database
    finally:
        if not found_running and holder(environment.data) in {None, os.getpid()}:
            await server.stop()


def check_finished(data: Path) -> None:
    """Raise `OwnerMustAct` if a restore into this data folder broke off: a gateway must not work on half of it."""
    if (begun := _begun(data)) is not None:
        raise OwnerMustAct(f"a restore into {data} broke off: finish it with `supaclaw restore {begun[1]}`")


@dataclass(slots=True)
class Begun:
    """One try at a restore: whether it is the first, and whether it has changed anything yet."""

    first: bool
    changed: bool = False


@contextmanager
def beginning(environment: Environment, archive: str, path: Path) -> Iterator[Begun]:
    """Take the place for this archive, or go on with it; a mark stays until `end`, unless nothing was changed.

    Raises `OwnerMustAct` saying what is in the way.
    """
    begun = Begun(_take(environment, archive, path))
    try:
        yield begun
    finally:
        if begun.first and not begun.changed and not _names(environment.data):
            (environment.data / _MARK).unlink()


def _take(environment: Environment, archive: str, path: Path) -> bool:
    """Whether it is the first try with this archive."""
    if (begun := _begun(environment.data)) is not None:
        if begun[0] == archive:
            return False
        raise OwnerMustAct(
            f"a restore of {begun[1]} into {environment.data} broke off: finish it with that file, or start afresh "
            "with an empty data folder, workspace and database"
        )
    check_room(environment)
    _write(environment.data / _MARK, json.dumps({"archive": archive, "path": str(path.resolve())}))
    return True


def end(environment: Environment) -> None:
    """All of it is there; on disk when this returns."""
    os.sync()
    (environment.data / _MARK).unlink()


def check_room(environment: Environment) -> None:
    """Raise `OwnerMustAct` unless data folder and workspace are missing or empty."""
    for folder, variable in ((environment.workspace, "SUPACLAW_WORKSPACE"), (environment.data, "SUPACLAW_DATA")):
        found = next((name for name in _names(folder) if folder / name != environment.workspace), None)
        if found is not None:
            raise OwnerMustAct(
                f"{folder} is not empty (it holds {found}): move it away, or name another folder in {variable}"
            )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(set(os.listdir(folder)) - _HARMLESS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OwnerMustAct(f"{folder} cannot be restored into: {error.strerror}") from error


def _begun(data: Path) -> tuple[str, str] | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        mark = json.loads((data / _MARK).read_text(encoding="utf-8"))
        return str(mark["archive"]), str(mark["path"])
    return None


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and on disk."""
    beside = path.with_suffix(".new")
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
