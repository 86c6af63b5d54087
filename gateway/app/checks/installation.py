"""Checks of the installation: config.json, packages that run code at start-up, folders, keys and free space."""

import os
import shlex
import shutil
import sysconfig
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import distributions
from pathlib import Path

from gateway.app.checks.context import CheckContext, fail, ok, warn
from gateway.app.installation import Checkout, Folder, find_installation
from gateway.config.data.erasures import erasure_reminder
from gateway.config.editing.hidden import masked
from gateway.config.failpoints import Failpoints
from gateway.config.load import parse_json, read
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.health import Finding, FindingLevel
from gateway.logs import SecretMask
from gateway.workspace.files.tree import Workspace
from gateway.workspace.template import renewals


def check_config(context: CheckContext) -> Iterator[Finding]:
    """Check that config.json is valid and that only its owner can read its secrets."""
    path = context.environment.config
    if context.problem:
        for line in str(context.problem).splitlines():
            yield fail(line, f"fix {path}; `supaclaw config validate` checks it again")
    elif not path.exists():
        yield ok(f"no {path}, the defaults are used")
    elif path.stat().st_mode & 0o077 and _holds_secrets(path):
        fix = f'chmod 600 {path}, or put "$env:NAME" there and keep the secrets in the environment'
        yield warn(f"other users can read the secrets in {path}", fix)
    else:
        yield ok(str(path))


def check_failpoint(context: CheckContext) -> Iterator[Finding]:
    """Warn about an armed crash test; yields nothing otherwise."""
    armed = context.environment.fail
    try:
        Failpoints(armed)
    except ConfigError as error:
        yield fail(str(error), "unset SUPACLAW_FAIL, or see `supaclaw doctor --failpoints`")
        return
    if armed:
        yield warn(f"the gateway will kill itself at {armed}", "unset SUPACLAW_FAIL")


def _holds_secrets(path: Path) -> bool:
    raw = parse_json(read(path) or "{}", path.name)
    return masked(raw) != raw or SecretMask().value(raw) != raw


_EXPECTED = frozenset({"coverage", "setuptools", "virtualenv"})
"""Development packages that have a start-up file for a good reason."""
_CUSTOMIZE = ("sitecustomize.py", "usercustomize.py")


def check_packages(_context: CheckContext, found: Collection[str] | None = None) -> Iterator[Finding]:
    """Check that no package runs code at every start of Python: hijacked releases steal keys that way."""
    found = startup_code(Path(sysconfig.get_path("purelib"))) if found is None else found
    if found:
        fix = "find out which package brought it, install again from uv.lock, and change your keys"
        yield fail(f"{', '.join(found)}: code that runs whenever Python starts", fix)
    else:
        yield ok("no package runs code when Python starts")


def startup_code(packages: Path) -> list[str]:
    """The files in a site-packages folder that Python runs at every start, except those of expected packages."""
    expected = {
        str(file)
        for each in distributions(path=[str(packages)])
        if each.name in _EXPECTED
        for file in each.files or ()
        if file.suffix == ".pth"
    }
    runs = [path for path in packages.glob("*.pth") if path.name not in expected and _has_code(path)]
    return sorted(path.name for path in [*runs, *(packages / name for name in _CUSTOMIZE)] if path.exists())


def _has_code(path: Path) -> bool:
    """Whether the file has a line that Python runs: one that begins with `import` (docs.python.org, `site`)."""
    return any(line.startswith(("import ", "import\t")) for line in path.read_text("utf-8", "replace").splitlines())


def check_update(context: CheckContext, find: Callable[[], Folder | Checkout] = find_installation) -> Iterator[Finding]:
    """Look for a newer version where the program came from, if `update.check` is on; yields nothing otherwise."""
    if not context.config.update.check:
        return
    try:
        newest = find().newest()
    except OwnerMustAct as error:
        yield Finding(FindingLevel.OK, "no newer version was looked for", str(error))
        return
    fix = "`supaclaw update` tries it on a copy first, then installs it"
    yield warn(f"version {newest.name} is available", fix) if newest else ok("this is the newest version")


_GIB = 1024**3


def check_folders(context: CheckContext) -> Iterator[Finding]:
    """Check that data and workspace are writable, and that data, workspace, backups and .env are private."""
    from gateway.app.storage.upgrade import BACKUPS

    data, workspace = context.environment.data, context.environment.workspace
    if data.is_dir() and data.stat().st_mode & 0o077:
        yield warn(f"other users can read {data}", f"chmod 700 {shlex.quote(str(data))}")
    # Owners may share a workspace outside the data folder with a group, but not with everybody.
    if not workspace.is_relative_to(data) and workspace.is_dir() and workspace.stat().st_mode & 0o007:
        yield warn(f"every user can read {workspace}", f"chmod -R o= {shlex.quote(str(workspace))}")
    for file in (context.environment.config.with_name(".env"), *sorted((data / BACKUPS).glob("*"))):
        yield from _private(file)
    yield _writable(data, "SUPACLAW_DATA")
    yield _writable(workspace, "SUPACLAW_WORKSPACE")
    if why := erasure_reminder(data):
        yield warn(*why.split("; ", 1))
    for renewal in renewals(Workspace(workspace)):
        fix = "`supaclaw workspace diff` shows it" if renewal.edited else "the next start of the gateway renews it"
        yield warn(f"this version has a newer {renewal.path}", fix)


def check_keys(context: CheckContext) -> Iterator[Finding]:
    """Check that every key is present and that only we can read it."""
    folder = context.environment.data / "keys"
    keys = sorted(folder.iterdir()) if folder.exists() else []
    for key in keys:
        yield from _private(key)
        if not os.access(key, os.R_OK) or not key.stat().st_size:
            yield fail(f"{key} is empty or cannot be read", "chown it, or restore it from a backup")
    journal = folder / "journal"
    if not journal.exists() and any((context.environment.workspace / "sessions").glob("*/*.md")):
        fix = f"restore {journal} from a backup; without it the files are rewritten from the database"
        yield warn("the key that signs the workspace's journals is missing", fix)
    yield ok(f"{len(keys)} in {folder}")


def check_disk(
    context: CheckContext, free: Callable[[Path], int] = lambda place: shutil.disk_usage(place).free
) -> Iterator[Finding]:
    """Check the free space for the database, the logs and the workspace; yields one finding per file system."""
    places = map(_existing, (context.environment.data, context.environment.workspace))
    for place in {place.stat().st_dev: place for place in places}.values():
        left = free(place)
        level = FindingLevel.OK if left >= _GIB else FindingLevel.WARN if left >= _GIB // 5 else FindingLevel.FAIL
        fix = "" if level is FindingLevel.OK else "free some space: on a full disk no message can be stored or accepted"
        yield Finding(level, f"{left / _GIB:.1f} GiB free at {place}", fix)


def _private(file: Path) -> Iterator[Finding]:
    if file.is_file() and file.stat().st_mode & 0o077:
        yield warn(f"other users can read {file}", f"chmod 600 {shlex.quote(str(file))}")


def _writable(folder: Path, variable: str) -> Finding:
    place = _existing(folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        fix = f"make it a folder that this user can write to, or set {variable} to another one"
        return fail(f"{place} is not a writable folder", fix)
    return ok(str(folder) if place == folder else f"{folder} will be created by the first start")


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    return next(place for place in (folder, *folder.parents) if place.exists())
