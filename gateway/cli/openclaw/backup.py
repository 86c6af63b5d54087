"""What was there before an installation: a private folder in the workspace."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from gateway.cli.openclaw.settings import Settings, parsed
from gateway.cli.openclaw.state import Places, as_json, sha256
from gateway.config.data.files import replace_private
from gateway.domain.errors import OwnerMustAct

CONFIG = "openclaw.json"
KEPT = ("AGENTS.md", "MEMORY.md", "memory")
"""Of the workspace."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Written last, so that a backup with one is whole."""

    files: dict[str, str]
    placed: dict[str, str] = field(default_factory=dict)
    """What an installation copied, by its path: only what still has this hash is taken out again."""
    absent: tuple[str, ...] = ()
    """Folders that were made for it."""


_MANIFEST = TypeAdapter(Manifest)


@dataclass(frozen=True, slots=True)
class Backup:
    """The folder; it is made once, and an installation that is repeated leaves it."""

    places: Places

    @property
    def folder(self) -> Path:
        """0700, its files 0600."""
        return self.places.backup

    def manifest(self) -> Manifest | None:
        """None if there is no whole backup."""
        try:
            return _MANIFEST.validate_json((self.folder / "manifest.json").read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise OwnerMustAct(f"{self.folder}/manifest.json is damaged; restore it, or delete the folder") from error

    def make(self, config: Path) -> None:
        """Copy what is there, the manifest last."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        sources = {CONFIG: config} | {name: self.places.workspace / name for name in KEPT}
        files: dict[str, str] = {}
        for name, source in sources.items():
            for file in [source] if source.is_file() else sorted(source.rglob("*")):
                if file.is_file() and not file.is_symlink():
                    kept = name if file == source else f"{name}/{file.relative_to(source)}"
                    replace_private(self.folder / kept, data := file.read_bytes())
                    files[kept] = sha256(data)
        absent = tuple(str(folder) for folder in self.places.parents() if not folder.exists())
        self._write(Manifest(files, absent=absent))

    def note(self, placed: dict[Path, bytes]) -> None:
        """Say what is about to be copied."""
        manifest = self.manifest() or Manifest({})
        added = {str(path): sha256(data) for path, data in placed.items()}
        self._write(Manifest(manifest.files, manifest.placed | added, manifest.absent))

    def config(self) -> bytes:
        """openclaw.json as it was; raises `OwnerMustAct` if somebody has changed the copy."""
        manifest = self.manifest()
        try:
            data = (self.folder / CONFIG).read_bytes()
        except OSError:
            data = b""
        if manifest is None or manifest.files.get(CONFIG) != sha256(data):
            raise OwnerMustAct(f"{self.folder / CONFIG} was changed; put the slot plugins.slots.memory back by hand")
        return data

    def settings(self) -> Settings:
        """The same, parsed."""
        return parsed(self.config().decode())

    def _write(self, manifest: Manifest) -> None:
        text = _MANIFEST.dump_python(manifest, mode="json")
        replace_private(self.folder / "manifest.json", as_json(text))


def load_json(path: Path) -> dict[str, str]:
    """The texts of a small file, {} where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
