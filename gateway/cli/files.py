"""`supaclaw files`."""

import os
import shutil
from pathlib import Path
from typing import Annotated, BinaryIO
from uuid import UUID

import typer

from gateway.cli.console import copy_out, echo
from gateway.cli.database import with_connection
from gateway.cli.output import AsJson, Limit, print_rows
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import FileId
from gateway.store.people import principals
from gateway.store.pool import Connection
from gateway.store.transcript import files
from gateway.store.transcript.files import FileRow
from gateway.workspace.descent import explained, open_file
from gateway.workspace.paths import WorkspacePath


def show(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List files that were received or written, newest first."""

    async def recent(conn: Connection) -> list[FileRow]:
        owner = await principals.owner(conn)
        return await files.recent(conn, owner.id, limit) if owner else []

    print_rows(with_connection(recent), ("id", "path", "size"), as_json=as_json)


def get(
    id: Annotated[UUID, typer.Argument(help="The id shown by `supaclaw files list`.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="PATH", help="Target; - is standard output.")] = ".",
) -> None:
    """Copy a file out of the workspace. Never overwrites a file."""

    async def known(conn: Connection) -> FileRow | None:
        owner = await principals.owner(conn)
        return await files.by_id(conn, owner.id, FileId(id)) if owner else None

    row = with_connection(known)
    if row is None:
        raise OwnerMustAct(f"there is no file {id}; `supaclaw files list` shows them")
    path = WorkspacePath.parse(row.path)
    with (
        explained(path),
        open_file(Environment.read(os.environ).workspace, path) as found,
        open(found, "rb", closefd=False) as file,
    ):
        _copy(file, output, path.name)


def _copy(file: BinaryIO, output: str, name: str) -> None:
    if output == "-":
        copy_out(file)
        return
    to = Path(output) / name if Path(output).is_dir() else Path(output)
    try:
        with to.open("xb") as copy:
            shutil.copyfileobj(file, copy)
    except FileExistsError:
        raise OwnerMustAct(f"{to} already exists; choose another name with --output") from None
    except OSError as error:
        raise OwnerMustAct(f"{to} cannot be written: {error.strerror}") from None
    echo(to)
