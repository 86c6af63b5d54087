"""The staging folder of a restore, which marks the place as unfinished, and the move from it into place."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.app.storage.manifest import CHANNELS, CONFIG, KEYS, NOT_KEYS, PRINCIPALS, WORKSPACE
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.files.paths import READ_ONLY
from gateway.workspace.template import is_reserved

_STAGING = "restore.unfinished"
_HARMLESS = frozenset({"gateway.pid", "lost+found"})


def check_restore_finished(data: Path) -> None:
    """Raise `OwnerMustAct` if a restore into this data folder broke off: a gateway must not work on half of it."""
    if (data / _STAGING).exists():
        raise OwnerMustAct(f"a restore into {data} was interrupted: finish it with the same `supaclaw restore FILE`")


@dataclass(slots=True)
class Staging:
    """An empty folder in the data folder."""

    folder: Path
    resumed: bool
    """An earlier restore broke off here; what lies in the folders to restore is its own."""
    begun: bool = False
    """Whether something outside of it has been changed."""


@contextmanager
def staging(environment: Environment) -> Iterator[Staging]:
    """Take the place, until all is done; what breaks off when it has `begun` has to be done again.

    Raises `OwnerMustAct` saying what is in the way. The caller holds the instance.
    """
    mark = environment.data / _STAGING
    stage = Staging(mark / "unpacked", resumed=mark.exists())
    try:
        if not stage.resumed:
            _check_room(environment)
        shutil.rmtree(stage.folder, ignore_errors=True)
        stage.folder.mkdir(mode=0o700, parents=True)
        yield stage
    except BaseException as error:
        if not (stage.resumed or stage.begun):
            shutil.rmtree(mark, ignore_errors=True)
        if isinstance(error, OSError):
            raise OwnerMustAct(f"the restore failed ({error}); fix that and restore again") from error
        raise
    os.sync()
    shutil.rmtree(mark)


def put_in_place(environment: Environment, unpacked: Path) -> Path | None:
    """Move what is known into its place; returns where config.json went."""
    data = environment.data
    roots = {WORKSPACE: environment.workspace} | {name: data / name for name in (PRINCIPALS, KEYS, CHANNELS)}
    for name, root in roots.items():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in _entries(unpacked / name, apart=name == WORKSPACE):
            if name != KEYS or not entry.name.startswith(NOT_KEYS):
                _put(entry, root / entry.relative_to(unpacked / name))
    return _put_config(unpacked / CONFIG, environment.config)


def _entries(folder: Path, *, apart: bool) -> Iterator[Path]:
    """What is moved as one. `apart`: not the folders that are mounted somewhere by themselves, but what is in them."""
    for entry in folder.glob("*"):
        if apart and entry.name in READ_ONLY and entry.is_dir() and not entry.is_symlink():
            yield from entry.glob("*")
        else:
            yield entry


def _put_config(saved: Path, target: Path) -> Path | None:
    """The path for config.json: its place if that is free, else beside it."""
    if not saved.exists():
        return None
    if target.exists() and target.read_bytes() != saved.read_bytes():
        target = target.with_name("config.restored.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    _put(saved, target)
    return target


def _put(source: Path, target: Path) -> None:
    """Move a file, link or folder, to another disk if need be, in place of what an unfinished restore put there."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    shutil.move(source, target)


def _check_room(environment: Environment) -> None:
    for folder, variable in ((environment.workspace, "SUPACLAW_WORKSPACE"), (environment.data, "SUPACLAW_DATA")):
        with suppress(FileNotFoundError):
            for name in sorted(set(os.listdir(folder)) - _HARMLESS):
                if folder / name != environment.workspace and not is_reserved(folder / name):
                    raise OwnerMustAct(
                        f"{folder} is not empty (it holds {name}): move it away, or name another folder in {variable}"
                    )
