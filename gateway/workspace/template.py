"""The first files of a new workspace."""

import os
import shutil
from pathlib import Path

TEMPLATE = Path(__file__).parents[2] / "workspace_template"
"""Beside the `gateway` package, in the source tree as in the wheel."""

_UNFINISHED = ".template"
_NOT_OURS = frozenset({"lost+found"})


def fill_new_workspace(root: Path, template: Path = TEMPLATE) -> bool:
    """Copy the template into a missing or empty folder; whether it did.

    Anything else is left as it is, so a file the owner deleted stays deleted. A copy that a crash broke off goes on.
    """
    root.mkdir(parents=True, exist_ok=True)
    staging = root / _UNFINISHED
    if not staging.exists() and any(path.name not in _NOT_OURS for path in root.iterdir()):
        return False
    staging.mkdir(exist_ok=True)
    for source in sorted(template.glob("*.md")):
        if not (root / source.name).exists():
            shutil.copyfile(source, staging / source.name)
            os.rename(staging / source.name, root / source.name)
    shutil.rmtree(staging)
    return True
