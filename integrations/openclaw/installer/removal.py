"""Remove an installation: files that nobody has changed since come back byte for byte."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.config.data.files import disk_full, draft_of, replace_private
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import OwnerMustAct, SupaclawError
from integrations.openclaw.installer import connection
from integrations.openclaw.installer.openclaw import OpenClaw, all_edits, as_json, same, undone
from integrations.openclaw.installer.state import ADDED, Backup, InstallState, Places, Removal, sha256


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
            self.failpoints.reach(Step.OPENCLAW_STEP)
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
        self.failpoints.reach(Step.OPENCLAW_STEP)

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
                self.failpoints.reach(Step.OPENCLAW_STEP)
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
