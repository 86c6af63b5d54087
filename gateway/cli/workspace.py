"""`supaclaw workspace`: what a new version has for files that you edited."""

import asyncio
import os
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.renewal import Renewal, renewals
from gateway.workspace.renewal import merge as merge_file
from gateway.workspace.tree import Workspace


def diff() -> None:
    """Show what merging would change in files that you edited."""
    _, found = _edited()
    for path, renewal in found.items():
        how = (
            f"supaclaw workspace merge {path}" if renewal.merged is not None else "edit it by hand: same lines changed"
        )
        echo(f"# {path}: {how}\n{renewal.diff()}")
    if not found:
        echo("nothing to merge: every file is as new as this version")


def merge(file: Annotated[str, typer.Argument(metavar="FILE", help="Such as AGENTS.md.")]) -> None:
    """Take over what this version changed in a file that you edited."""
    workspace, found = _edited()
    if file not in found:
        raise OwnerMustAct(f"there is nothing to merge into {file}; `supaclaw workspace diff` shows what there is")
    asyncio.run(merge_file(workspace, found[file]))
    echo(f"{file} is merged")


def _edited() -> tuple[Workspace, dict[str, Renewal]]:
    workspace = Workspace(Environment.read(os.environ).workspace)
    return workspace, {renewal.path: renewal for renewal in renewals(workspace) if renewal.edited}
