"""The nine steps of an installation, each of which can be repeated after a kill; and its removal."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway.cli.connections.database import leak_guard, require_owner, with_database
from gateway.cli.storage.imports import make_findable, reader, store_parts
from gateway.cli.terminal.console import echo
from gateway.config.data.files import disk_full, draft_of, has_room, replace_private
from gateway.config.failpoints import Failpoints
from gateway.config.failpoints import Step as Failpoint
from gateway.domain.errors import DiskFull, OwnerMustAct, SupaclawError
from gateway.importers import discover
from gateway.importers.records.writer import ImportWriter, Tally
from gateway.store.connection.pool import Database
from integrations.openclaw.installer import connection
from integrations.openclaw.installer.openclaw import (
    MIN_VERSION,
    PLUGIN,
    TESTED_VERSION,
    Edit,
    OpenClaw,
    all_edits,
    as_json,
    discovers_hooks,
    edited,
    flush_edits,
    hook_edits,
    plugin_edits,
    same,
    undone,
)
from integrations.openclaw.installer.state import (
    ADDED,
    GUIDE_MARK,
    HOOK_FOLDER,
    PLUGIN_FOLDER,
    SKILL_FOLDER,
    Backup,
    InstallState,
    Places,
    Removal,
    Step,
    sha256,
)


@dataclass(frozen=True, slots=True)
class Installer:
    """Makes SupaClaw the memory of an OpenClaw; `remote` is None for the gateway of this machine."""

    openclaw: OpenClaw
    places: Places
    state: InstallState
    failpoints: Failpoints
    remote: connection.Connection | None

    def run(self) -> None:
        """Do the remaining steps. A failure undoes the whole installation; after a kill the next call continues."""
        self._check_folders()
        steps = self._steps()
        for step in [step for step in Step if step not in self.state.completedSteps]:
            try:
                self.state.currentStep = step
                self.places.save(self.state)
                self.failpoints.reach(Failpoint.OPENCLAW_STEP)
                steps[step]()
                self.failpoints.reach(Failpoint.OPENCLAW_STEP)
                self._finish(step)
            except (SupaclawError, OSError) as error:
                self._give_up(step, error)
        echo("Installation complete. Restart your gateway.")

    def preview(self) -> None:
        """Check, and print what would be changed."""
        self._check_folders()
        self._verify_prereqs()
        echo(f"Would import: {self._imported(dry_run=True)}")
        for path in self.places.ours(hooks=self.state.config.hooks):
            echo(f"Would write {path}")
        for edit in all_edits(self.state.config.eligibleHooks, hooks=self.state.config.hooks):
            if not edit.member:
                echo(f"Would set {'.'.join(edit.path)} in {self.openclaw.config}")

    def _steps(self) -> dict[Step, Callable[[], None]]:
        return {
            Step.VERIFY_PREREQS: self._verify_prereqs,
            Step.BACKUP: self._back_up,
            Step.IMPORT_MEMORIES: self._import_memories,
            Step.INSTALL_PLUGIN: self._install_plugin,
            Step.CONFIGURE_FLUSH: lambda: self._configure(flush_edits()),
            Step.WORKSPACE_FILES: self._workspace_files,
            Step.INSTALL_HOOKS: self._install_hooks,
            Step.INSTALL_SKILL: lambda: self._place(self.places.workspace / SKILL_FOLDER),
            Step.VERIFY: lambda: verify(self.openclaw, self.places),
        }

    def _finish(self, step: Step) -> None:
        self.state.completedSteps.append(step)
        self.state.currentStep = None
        if step is Step.VERIFY:
            self.state.status = "complete"
        self.places.save(self.state)

    def _give_up(self, step: Step, error: Exception) -> None:
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        try:
            Remover(self.openclaw, self.places, self.state, self.failpoints, lambda _: None).run()
        except (SupaclawError, OSError) as left:
            raise OwnerMustAct(
                f"{step}: {text}; undoing the installation failed, too ({left}): run `supaclaw openclaw uninstall`"
            ) from error
        kind, advice = (DiskFull, "; make room, and run this again") if disk_full(error) else (OwnerMustAct, "")
        raise kind(f"{step}: {text.rstrip('.')}. Everything is as it was before{advice}") from error

    # --- the steps ---

    def _verify_prereqs(self) -> None:
        version = self.openclaw.version()
        if _numbers(version) < _numbers(MIN_VERSION):
            raise OwnerMustAct(f"OpenClaw {version} is too old; the plugin needs {MIN_VERSION} or newer: update it")
        if version != TESTED_VERSION:
            echo(f"OpenClaw {version} is not the tested version ({TESTED_VERSION}); each step is checked")
        self.openclaw.read()
        if problem := self.openclaw.problem():
            raise OwnerMustAct(f"OpenClaw rejects its own settings ({problem}); run `openclaw doctor --fix` first")
        fresh = Backup(self.places).manifest() is None
        if fresh:
            self._check_free()
        if self.remote is None:
            connection.check_database(self.state.token, fresh=fresh)
        else:
            self.remote.request("GET", "/api/memory?limit=1")

    def _check_folders(self) -> None:
        """Raise `OwnerMustAct` if a folder can't be written; before anything is, even the state file."""
        for folder in (self.places.workspace, self.places.state, self.openclaw.config.parent):
            if not os.access(folder, os.W_OK | os.X_OK):
                raise OwnerMustAct(f"{folder} cannot be written; make it writable, or run this as OpenClaw's user")
            if not has_room(folder):
                raise OwnerMustAct(f"the disk of {folder} is full; make room first")

    def _check_free(self) -> None:
        """Raise `OwnerMustAct` if something lies where files will be copied to."""
        ours = self.places.ours(hooks=self.state.config.hooks)
        for path in {*ours, self.places.connection, *(path.parent for path in ours)}:
            if path.exists() and path not in {self.places.workspace}:
                raise OwnerMustAct(f"{path} exists already and is not from this installer; move it away first")

    def _back_up(self) -> None:
        backup = Backup(self.places)
        if backup.manifest() is None:
            backup.make(self.openclaw.config)

    def _import_memories(self) -> None:
        if self.remote is not None:
            echo("Nothing is imported into a gateway on another machine; run `supaclaw import openclaw` there")
            return
        tally = self._imported(dry_run=False)
        echo(f"Imported: {tally}")
        echo(
            "Search by meaning works once the gateway has embedded them. Stay with one embedding model: vectors of "
            "two models can't be compared. The model for summaries (models.summary) may change at any time."
        )
        for damaged in tally.damaged[:5]:
            echo(f"Skipped: {damaged.place}: {damaged.why}")

    def _imported(self, *, dry_run: bool) -> Tally:
        async def work(database: Database) -> Tally:
            owner = await database.read(require_owner)
            agent, now, clean = self.state.agentId, datetime.now(UTC), await leak_guard(database)
            writer = ImportWriter(database, owner.id, agent, now, own=False, dry_run=dry_run, clean=clean)
            files, sources = reader(owner), discover()
            await store_parts(writer, "openclaw", self.places.workspace, sources, files)
            if self.places.state != self.places.workspace.parent:
                await writer.store("openclaw", sources["openclaw"].read(self.places.state, files))
            if writer.tally.messages and not dry_run:
                await make_findable(database)
            return writer.tally

        return with_database(work)

    def _install_plugin(self) -> None:
        self._place(self.places.state / PLUGIN_FOLDER)
        self.failpoints.reach(Failpoint.OPENCLAW_STEP)
        if self.remote is None:
            connection.issue(self.places, self.state)
        else:
            connection.store(self.places, self.remote)
        self.failpoints.reach(Failpoint.OPENCLAW_STEP)
        self._configure(plugin_edits())

    def _workspace_files(self) -> None:
        self._place(self.places.workspace, only=lambda path: path.parent == self.places.workspace)
        agents = self.places.workspace / "AGENTS.md"
        self.failpoints.reach(Failpoint.OPENCLAW_STEP)
        if agents.is_file() and GUIDE_MARK[0] not in (text := agents.read_text(encoding="utf-8")):
            replace_private(agents, (text + ADDED).encode(), mode=agents.stat().st_mode & 0o777)

    def _install_hooks(self) -> None:
        if not self.state.config.hooks:
            return
        if discovers_hooks(self.openclaw.read()):
            self.state.choose(eligibleHooks=tuple(self.openclaw.eligible_hooks()))
            self.places.save(self.state)
        self._place(self.places.state / HOOK_FOLDER)
        self._configure(hook_edits(self.state.config.eligibleHooks))

    def _configure(self, edits: list[Edit]) -> None:
        settings = self.openclaw.read()
        try:
            new = edited(settings, edits)
        except ValueError as error:
            raise OwnerMustAct(f"{self.openclaw.config}: {error}; change it by hand") from error
        if new != settings:
            self.openclaw.write(as_json(new))

    def _place(self, folder: Path, only: Callable[[Path], bool] = lambda _: True) -> None:
        """Copy the files that belong below `folder`, after recording them in the backup's manifest."""
        every = self.places.ours(hooks=self.state.config.hooks)
        ours = {path: data for path, data in every.items() if path.is_relative_to(folder) and only(path)}
        Backup(self.places).note(ours)
        for path, data in ours.items():
            self.failpoints.reach(Failpoint.OPENCLAW_STEP)
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace_private(path, data, mode=0o644)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def verify(openclaw: OpenClaw, places: Places) -> None:
    """Raise `OwnerMustAct` unless OpenClaw has loaded the plugin as its memory, and the memory works."""
    plugin = openclaw.inspected(PLUGIN)
    chosen = plugin.get("memorySlotSelected") or plugin.get("activationReason") == "selected memory slot"
    status = plugin.get("status")
    if status != "loaded" or not chosen:
        raise OwnerMustAct(f"OpenClaw did not load {PLUGIN} (status: {status}, {plugin.get('error', '')})")
    connection.stored(places).round_trip()


@dataclass(frozen=True, slots=True)
class Remover:
    """Does the remaining steps of a removal, which can be repeated after a kill; `tell` prints a line.

    The database keeps what OpenClaw stored in it.
    """

    openclaw: OpenClaw
    places: Places
    state: InstallState
    failpoints: Failpoints
    tell: Callable[[str], None]

    def run(self) -> None:
        """Do the steps in order, and delete the state file last."""
        steps: dict[Removal, Callable[[], None]] = {
            Removal.CONFIG: self._restore_config_on_any_disk,
            Removal.FILES: self._remove_files,
            Removal.BACKUP: lambda: _remove_tree(self.places.backup),
        }
        self.state.status = "uninstalling"
        for step in [step for step in steps if step not in self.state.completedSteps]:
            self._save(step)
            steps[step]()
            self.failpoints.reach(Failpoint.OPENCLAW_STEP)
            self.state.completedSteps.append(step)
        for path in (self.places.workspace / "AGENTS.md", self.openclaw.config, self.places.file):
            draft_of(path).unlink(missing_ok=True)
        self.places.file.unlink(missing_ok=True)

    def _save(self, step: Removal) -> None:
        self.state.currentStep = step
        try:
            self.places.save(self.state)
        except OSError:
            if step is Removal.BACKUP:  # after a kill the next run would look for the backup first
                raise
        self.failpoints.reach(Failpoint.OPENCLAW_STEP)

    def _restore_config_on_any_disk(self) -> None:
        """Restore openclaw.json; on a full disk delete our files first, which OpenClaw then misses for a moment."""
        try:
            self._restore_config()
        except (SupaclawError, OSError) as error:
            if not disk_full(error):
                raise
            self._remove_files()
            self._restore_config()

    def _restore_config(self) -> None:
        backup = Backup(self.places)
        if backup.manifest() is None:
            return
        before = backup.settings()
        now = self.openclaw.read()
        wanted = undone(now, before, all_edits(self.state.config.eligibleHooks, hooks=self.state.config.hooks))
        if same(wanted, before):
            self.openclaw.write(backup.config())
        elif wanted != now:
            self.openclaw.write(as_json(wanted))
            self.tell(f"{self.openclaw.config} was changed since; only SupaClaw's settings were removed from it")

    def _remove_files(self) -> None:
        manifest = Backup(self.places).manifest()
        for name, digest in manifest.placed.items() if manifest else ():
            path = self._ours(name)
            draft_of(path).unlink(missing_ok=True)
            if path.is_file():
                self.failpoints.reach(Failpoint.OPENCLAW_STEP)
                if sha256(path.read_bytes()) != digest:
                    self.tell(f"{path} was changed since; it stays")
                    continue
                path.unlink()
            _remove_empty(path.parent)
        self._clean_agents()
        self._remove_connection()
        for folder in manifest.absent if manifest else ():
            if Path(folder) in self.places.parents():
                _remove_empty(Path(folder))

    def _ours(self, name: str) -> Path:
        """The path, if an installation writes it; raises `OwnerMustAct` otherwise: an agent can edit the manifest."""
        path = Path(name)
        if path not in self.places.ours(hooks=True):
            raise OwnerMustAct(
                f"{self.places.backup}/manifest.json names {path}, which no installation writes; delete that line"
            )
        return path

    def _clean_agents(self) -> None:
        agents = self.places.workspace / "AGENTS.md"
        if not agents.is_file() or ADDED not in (text := agents.read_text(encoding="utf-8")):
            return
        replace_private(agents, text.replace(ADDED, "", 1).encode(), mode=agents.stat().st_mode & 0o777)

    def _remove_connection(self) -> None:
        folder = self.places.connection
        if unlogged := list((folder / "spool").glob("*.json")):
            self.tell(f"{len(unlogged)} parts of conversations were not logged; `supaclaw import openclaw` reads them")
        if not self.state.config.remote:
            connection.revoke(self.places, self.state)
        _remove_tree(folder)


def _remove_tree(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
