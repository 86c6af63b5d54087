"""`supaclaw files sync`: synchronise a folder with the object store once."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Annotated

from gateway.app.storage.offline import StoredSecrets
from gateway.cli.connections.database import require_owner, with_database
from gateway.cli.terminal.console import echo, progress_bar, show_after_a_second
from gateway.cli.terminal.output import AsJson, argument, flag, option, print_rows
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.load import load
from gateway.domain.errors import OwnerMustAct
from gateway.flow.files.replica import Missing, Replica
from gateway.flow.files.sync import SYNC_FOLDER
from gateway.flow.labels import owner_labels
from gateway.net.addresses import Rules
from gateway.net.object_store import ObjectStore, StoreAddress
from gateway.store.connection.pool import Database
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import OwnerEdits
from gateway.workspace.sync.folder import StateFile
from gateway.workspace.sync.plan import Action, Drop, Pull, Push, Retract

OFF = "workspace.url is not set, so there is nothing to synchronise with; docs/scale.md says how"
GATEWAY_SYNCS = "the gateway that runs here synchronises its workspace itself; `supaclaw down` stops it"


def sync(
    folder: Annotated[Path, argument("The folder; the first run merges both sides.", "DIR")],
    dry_run: Annotated[bool, flag("Show what would be done.", "--dry-run")] = False,
    missing: Annotated[Missing, option("If most files are missing in DIR: ask, delete or restore them.")] = Missing.ASK,
    as_json: AsJson = False,
) -> None:
    """Synchronise a folder with the workspace on the object store, once."""
    environment = Environment.read(os.environ)
    root = _checked_folder(folder.absolute(), environment)
    config = load(environment.config, os.environ, StoredSecrets(environment, os.environ))
    if config.workspace.url is None:
        raise OwnerMustAct(OFF)
    store = ObjectStore(StoreAddress.of(config.workspace), lambda: Rules.of(config.net.private_allow))

    async def work(database: Database) -> tuple[list[Mapping[str, str]], dict[str, str]]:
        with closing(store):
            replica = await _replica(database, environment, root, store)
            if dry_run:
                with show_after_a_second("comparing …"):
                    planned = await replica.look(missing)
                return list(_steps(planned.actions)), dict(planned.refused)
            with ExitStack() as bars:
                done = await replica.sync(missing, partial(_start_bar, bars, as_json))
            return list(_steps(done.actions)), done.problems

    steps, problems = with_database(work)
    print_rows(steps, ("what", "path"), as_json=as_json, none="Both sides are the same.")
    for path, why in problems.items():
        echo(f"supaclaw: {path} was left alone: {why}", error=True)


def _checked_folder(root: Path, environment: Environment) -> Path:
    """The folder to synchronise; raises `OwnerMustAct` if it isn't one, or overlaps the data folder with the keys."""
    real, data, own = root.resolve(), environment.data.resolve(), environment.workspace.resolve()
    if real == own and running_pid(environment.data):
        raise OwnerMustAct(GATEWAY_SYNCS)
    if real != own and (data.is_relative_to(real) or real.is_relative_to(data)):
        raise OwnerMustAct(f"{root} overlaps the data folder {data}, which has the keys; choose another folder")
    if not root.is_dir():
        raise OwnerMustAct(f"there is no folder {root}; create it first")
    return real


async def _replica(database: Database, environment: Environment, root: Path, store: ObjectStore) -> Replica:
    owner = await database.read(require_owner)
    workspace = Workspace(root, owner_labels(database, owner.id))
    workspace.before_edit = OwnerEdits(environment.data).note
    state = StateFile.of(environment.data / SYNC_FOLDER, root, str(owner.id), store.address.place)
    return Replica(database, owner.id, workspace, None, store, state, Failpoints(environment.fail))


def _start_bar(bars: ExitStack, quiet: bool, many: int) -> Callable[[], None]:
    bars.close()
    advance = bars.enter_context(progress_bar("synchronising", many, quiet=quiet))
    return lambda: advance(1)


_WORDS = {Push: "upload", Pull: "download", Retract: "delete elsewhere", Drop: "delete here"}


def _steps(actions: Sequence[Action]) -> Iterator[Mapping[str, str]]:
    for action in sorted(actions, key=lambda each: each.path):
        yield {"what": _WORDS[type(action)], "path": action.path}
        if isinstance(action, Pull) and action.beside:
            yield {"what": "keep beside", "path": action.beside}
