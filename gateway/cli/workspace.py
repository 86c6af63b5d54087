"""`supaclaw workspace`: what a new version has for files that you edited."""

import asyncio
import os
from typing import Annotated

import typer

from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.renewal import Renewal, renewals
from gateway.workspace.renewal import merge as merge_file
from gateway.workspace.tree import Workspace


def diff() -> None:
    """Show what merging the template of this version would change in files that you edited."""
    found = _edited(_workspace())
    for path, renewal in found.items():
        how = (
            f"supaclaw workspace merge {path}" if renewal.merged is not None else "edit it by hand: same lines changed"
        )
        print(f"# {path}: {how}\n{renewal.diff()}")
    if not found:
        print("nothing to merge: every file is as new as this version")


def merge(file: Annotated[str, typer.Argument(metavar="FILE", help="Such as AGENTS.md.")]) -> None:
    """Take over what the template of this version changed in a file, and keep what you edited."""
    workspace = _workspace()
    if (renewal := _edited(workspace).get(file)) is None:
        raise OwnerMustAct(f"there is nothing to merge into {file}; `supaclaw workspace diff` shows what there is")
    asyncio.run(merge_file(workspace, renewal))
    print(f"{file} is merged")


def _workspace() -> Workspace:
    return Workspace(Environment.read(os.environ).workspace)


def _edited(workspace: Workspace) -> dict[str, Renewal]:
    return {renewal.path: renewal for renewal in renewals(workspace) if renewal.edited}
