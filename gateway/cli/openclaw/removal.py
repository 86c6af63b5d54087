"""Taking an installation out again: what nobody has changed since comes back byte for byte."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.openclaw import connection
from gateway.cli.openclaw.backup import Backup
from gateway.cli.openclaw.program import OpenClaw
from gateway.cli.openclaw.settings import all_edits, rendered, same, undone
from gateway.cli.openclaw.state import ADDED, InstallState, Places, Removal, sha256
from gateway.cli.terminal.console import echo
from gateway.config.data.files import disk_full, draft_of, replace_private
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import OwnerMustAct, SupaclawError


@dataclass(frozen=True, slots=True)
class Remover:
    """Does what is left to do; can be repeated after a kill. What is in the database stays."""

    openclaw: OpenClaw
    places: Places
    state: InstallState
    failpoints: Failpoints
    tell: Callable[[str], None] = echo

    def run(self) -> None:
        """In order; the state file goes last."""
        steps = {
            Removal.CONFIG: self._restore_config_on_any_disk,
            Removal.FILES: self._remove_files,
            Removal.TOKEN: self._revoke_token,
            Removal.BACKUP: self._remove_backup,
        }
        self.state.status = "uninstalling"
        for step in [step for step in Removal if step not in self.state.completedSteps]:
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
            if step is Removal.BACKUP:  # a kill would find no backup, and begin with it
                raise
        self.failpoints.reach(Step.OPENCLAW_STEP)

    def _restore_config_on_any_disk(self) -> None:
        """On a full one our files go first, which makes room, and OpenClaw misses them for a moment."""
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
            self.openclaw.write(rendered(wanted))
            self.tell(f"{self.openclaw.config} has other changes since; only what is ours was taken out of it")

    def _remove_files(self) -> None:
        manifest = Backup(self.places).manifest()
        for name, digest in manifest.placed.items() if manifest else ():
            path = self._ours(name)
            draft_of(path).unlink(missing_ok=True)
            if not path.is_file():
                _remove_empty(path.parent, down_to=path.parents[1])
                continue
            self.failpoints.reach(Step.OPENCLAW_STEP)
            if sha256(path.read_bytes()) == digest:
                path.unlink()
                _remove_empty(path.parent, down_to=path.parents[1])
            else:
                self.tell(f"{path} was changed since; it stays")
        self._clean_agents()
        self._remove_connection()
        for folder in manifest.absent if manifest else ():
            if Path(folder) in self.places.parents():
                _remove_empty(Path(folder), down_to=Path(folder).parent)

    def _ours(self, name: str) -> Path:
        """A path that an installation may have written; the manifest lies where an agent can change it."""
        path = Path(name)
        if path not in self.places.ours(hooks=True):
            raise OwnerMustAct(f"{self.places.backup}/manifest.json names {path}, which is not ours; delete that line")
        return path

    def _clean_agents(self) -> None:
        agents = self.places.workspace / "AGENTS.md"
        if not agents.is_file() or ADDED not in (text := agents.read_text(encoding="utf-8")):
            return
        mode = agents.stat().st_mode & 0o777
        replace_private(agents, text.replace(ADDED, "", 1).encode())
        agents.chmod(mode)

    def _remove_connection(self) -> None:
        folder = self.places.connection
        waiting = list((folder / "spool").glob("*.json"))
        if waiting:
            self.tell(f"{len(waiting)} parts of conversations were not logged; `supaclaw import openclaw` reads them")
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        _remove_empty(folder, down_to=folder.parent)

    def _revoke_token(self) -> None:
        if not self.state.config.remote:
            connection.revoke(self.state)

    def _remove_backup(self) -> None:
        for path in sorted(self.places.backup.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        _remove_empty(self.places.backup, down_to=self.places.workspace)


def _remove_empty(folder: Path, *, down_to: Path) -> None:
    if folder != down_to and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
