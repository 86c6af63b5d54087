"""The first files of a new workspace."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gateway.config.data.files import sync_to_disk
from gateway.workspace.paths import READ_ONLY

TEMPLATE = Path(__file__).parents[2] / "workspace_template"
"""Beside the `gateway` package, in the source tree as in the wheel."""
RELEASED = ".released"
"""In the template: `N/PATH` is the text of a file in release N, kept there when the next one changes it."""

_UNFINISHED = ".template"
_NOT_OURS = frozenset({"lost+found"})


def fill_new_workspace(root: Path, template: Path = TEMPLATE) -> bool:
    """Copy the template into a missing or empty folder; whether it did.

    Anything else is left as it is, so a file the owner deleted stays deleted. A copy that a crash broke off goes on.
    """
    root.mkdir(parents=True, exist_ok=True)
    staging = root / _UNFINISHED
    if not staging.exists() and any(path.name not in _NOT_OURS and not is_reserved(path) for path in root.iterdir()):
        return False
    staging.mkdir(exist_ok=True)
    for source in template_files(template):
        if not (root / source).exists():
            (root / source).parent.mkdir(parents=True, exist_ok=True)
            sync_to_disk(shutil.copyfile(template / source, staging / source.name))
            os.rename(staging / source.name, root / source)
    shutil.rmtree(staging)
    return True


def is_reserved(path: Path) -> bool:
    """Whether it is one of the gateway's folders, empty: where it is mounted, it is made before the first start."""
    return path.name in READ_ONLY and not path.is_symlink() and path.is_dir() and not any(path.iterdir())


def template_files(template: Path = TEMPLATE) -> Iterator[Path]:
    """What a new workspace gets, by path."""
    found = (path.relative_to(template) for path in sorted(template.rglob("*")) if path.is_file())
    return (path for path in found if path.parts[0] != RELEASED)


def template_hashes(template: Path = TEMPLATE) -> frozenset[str]:
    """Of every file that any release put into new workspaces, and of an empty one: nobody else's words are in them."""
    texts = (path.read_bytes() for path in template.rglob("*") if path.is_file())
    return frozenset(hashlib.sha256(text).hexdigest() for text in (b"", *texts))
