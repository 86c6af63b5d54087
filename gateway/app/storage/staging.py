"""The staging folder of a restore, which marks it as unfinished, and the move from there into place."""

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
    """Raise `OwnerMustAct` if a restore into this data folder was interrupted: a gateway must not run on half of it."""
    if (data / _STAGING).exists():
        raise OwnerMustAct(f"a restore into {data} was interrupted: finish it with the same `supaclaw restore FILE`")


@dataclass(slots=True)
class Staging:
    """The empty staging folder in the data folder, and the state of its restore."""

    folder: Path
    resumed: bool
    """Whether an earlier restore was interrupted here; then the files in the target folders come from it."""
    begun: bool = False
    """Whether anything outside the staging folder has been changed."""


@contextmanager
def staging(environment: Environment) -> Iterator[Staging]:
    """Hold the staging folder until the restore is complete; after `begun`, an interrupted restore must be repeated.

    Raises `OwnerMustAct` that says what is in the way. The caller holds the instance.
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
    """Move the unpacked files into place; return the new path of config.json."""
    data = environment.data
    roots = {WORKSPACE: environment.workspace} | {name: data / name for name in (PRINCIPALS, KEYS, CHANNELS)}
    for name, root in roots.items():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in _entries(unpacked / name, apart=name == WORKSPACE):
            if name != KEYS or not entry.name.startswith(NOT_KEYS):
                _put(entry, root / entry.relative_to(unpacked / name))
    return _put_config(unpacked / CONFIG, environment.config)


def _entries(folder: Path, *, apart: bool) -> Iterator[Path]:
    """Yield the paths that move as one. `apart`: yields the contents of folders that may be separate mounts."""
    for entry in folder.glob("*"):
        if apart and entry.name in READ_ONLY and entry.is_dir() and not entry.is_symlink():
            yield from entry.glob("*")
        else:
            yield entry


def _put_config(saved: Path, target: Path) -> Path | None:
    """Move config.json to its place if that is free, else beside it; return its path, None if there is none."""
    if not saved.exists():
        return None
    if target.exists() and target.read_bytes() != saved.read_bytes():
        target = target.with_name("config.restored.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    _put(saved, target)
    return target


def _put(source: Path, target: Path) -> None:
    """Move a file, link or folder, also between disks, and replace what an unfinished restore left there."""
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
