"""The files that an installation keeps in the workspace: its progress, and a backup of what it changes."""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.config.data.files import read_regular, replace_private
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import one_line
from integrations.openclaw.installer.openclaw import Settings, as_json, parsed

DATA = Path(__file__).parents[1]
"""The plugin, the hooks, the skill and the guide that are copied into an OpenClaw."""
PLUGIN_FOLDER, HOOK_FOLDER, SKILL_FOLDER = "extensions", "hooks", "skills"
GUIDE = "SUPACLAW.md"

GUIDE_MARK = ("<!-- supaclaw:begin -->", "<!-- supaclaw:end -->")
SECTION = (
    f"{GUIDE_MARK[0]}\n## Memory\n\nYour long-term memory is SupaClaw. Read SUPACLAW.md: it says when to search "
    f"(`memory_search`) and what to keep (`memory_remember`).\n{GUIDE_MARK[1]}"
)
ADDED = f"\n\n{SECTION}\n"
"""The end that AGENTS.md gets."""


class Step(StrEnum):
    """The steps of an installation, in order."""

    VERIFY_PREREQS = "verify_prereqs"
    BACKUP = "backup"
    IMPORT_MEMORIES = "import_memories"
    INSTALL_PLUGIN = "install_plugin"
    CONFIGURE_FLUSH = "configure_flush"
    WORKSPACE_FILES = "workspace_files"
    INSTALL_HOOKS = "install_hooks"
    INSTALL_SKILL = "install_skill"
    VERIFY = "verify"


class Removal(StrEnum):
    """The steps of a removal, in order."""

    CONFIG = "restore_config"
    FILES = "remove_files"
    TOKEN = "revoke_token"
    """Of earlier versions; now the token goes with its file."""
    BACKUP = "remove_backup"


class Chosen(BaseModel):
    """The options of an installation, and what its steps found out that a removal has to know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workspacePath: str  # noqa: N815 - the names of the file
    openclawConfigPath: str  # noqa: N815
    stateDir: str  # noqa: N815
    hooks: bool = False
    shared: bool = False
    remote: bool = False
    layout: Literal["new", "old"] = "new"
    """Of earlier versions; the plugin needs one that has the new keys."""
    eligibleHooks: tuple[str, ...] = ()  # noqa: N815


class InstallState(BaseModel):
    """The content of `.supaclaw-install.json`: how far an installation or a removal has come."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    agentId: str = Field(min_length=1, max_length=100)  # noqa: N815
    config: Chosen
    startedAt: datetime  # noqa: N815
    completedSteps: list[Step | Removal] = []  # noqa: N815
    currentStep: Step | Removal | None = None  # noqa: N815
    status: Literal["installing", "complete", "uninstalling"] = "installing"

    @property
    def token(self) -> str:
        """The name of the API token that the plugin uses."""
        return f"openclaw {self.agentId}"

    def choose(self, **changes: object) -> None:
        """Record facts that a step has found out."""
        self.config = self.config.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class Places:
    """All files and folders that an installation touches."""

    workspace: Path
    state: Path

    @property
    def file(self) -> Path:
        """The file of `InstallState`."""
        return self.workspace / ".supaclaw-install.json"

    @property
    def backup(self) -> Path:
        """The folder of the backup, for the owner alone: openclaw.json holds keys."""
        return self.workspace / ".supaclaw-backup"

    @property
    def connection(self) -> Path:
        """The folder of the plugin's token, and of conversations that it could not log yet."""
        return self.state / "supaclaw"

    def load(self) -> InstallState | None:
        """Read the state; None before an installation, raises `OwnerMustAct` if the file was changed."""
        try:
            state = InstallState.model_validate_json(read_regular(self.file))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error.strerror)
            raise OwnerMustAct(
                f"{self.file} was changed by hand ({one_line(reason, 80)}); `supaclaw openclaw uninstall --force` "
                "removes the installation"
            ) from error
        chosen = state.config
        if (Path(chosen.workspacePath), Path(chosen.stateDir)) != (self.workspace, self.state):
            raise OwnerMustAct(
                f"{self.file} is about {chosen.workspacePath} and {chosen.stateDir}; "
                "pass these as --workspace and --state"
            )
        return state

    def save(self, state: InstallState) -> None:
        """Replace the file durably: a kill leaves the old file or the new one."""
        replace_private(self.file, (state.model_dump_json(indent=2) + "\n").encode())

    def ours(self, *, hooks: bool) -> dict[Path, bytes]:
        """The content of each file that an installation copies, by its destination."""
        folders = {
            "memory-supaclaw": self.state / PLUGIN_FOLDER / "memory-supaclaw",
            "skill": self.workspace / SKILL_FOLDER / "supaclaw",
        }
        named = [folder.name for folder in (DATA / "hooks").iterdir()] if hooks else []
        folders |= {f"hooks/{name}": self.state / HOOK_FOLDER / name for name in named}
        found = {
            target / file.relative_to(DATA / name): file.read_bytes()
            for name, target in folders.items()
            for file in sorted((DATA / name).rglob("*"))
            if file.is_file()
        }
        client = (DATA / "memory-supaclaw" / "client.js").read_bytes()
        # OpenClaw runs hooks apart from the plugin.
        found |= {self.state / HOOK_FOLDER / name / "client.js": client for name in named}
        return found | {self.workspace / GUIDE: (DATA / GUIDE).read_bytes()}

    def parents(self) -> list[Path]:
        """Folders of OpenClaw that an installation creates if they are missing."""
        return [self.state / PLUGIN_FOLDER, self.state / HOOK_FOLDER, self.workspace / SKILL_FOLDER]


def sha256(data: bytes) -> str:
    """The digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


CONFIG = "openclaw.json"
BACKED_UP = ("AGENTS.md", "MEMORY.md", "memory")
"""Files and folders of the workspace that go into the backup beside openclaw.json."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup; it is written last, so that a backup with a manifest is complete."""

    files: dict[str, str]
    """The hash of each file in the backup."""
    placed: dict[str, str] = field(default_factory=dict)
    """The hash of each file that was copied into OpenClaw: a removal deletes those that still have it."""
    absent: tuple[str, ...] = ()
    """Folders that the installation created."""


_MANIFEST = TypeAdapter(Manifest)


@dataclass(frozen=True, slots=True)
class Backup:
    """The backup in `places.backup` (0700, files 0600): made once, and left alone by a repeated installation."""

    places: Places

    def manifest(self) -> Manifest | None:
        """Read the manifest; None if there is no complete backup, raises `OwnerMustAct` if it is damaged."""
        path = self.places.backup / "manifest.json"
        try:
            return _MANIFEST.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise OwnerMustAct(f"{path} is damaged; restore it, or delete the folder") from error

    def make(self, config: Path) -> None:
        """Copy openclaw.json and the files of the workspace that an installation changes or imports."""
        shutil.rmtree(self.places.backup, ignore_errors=True)
        self.places.backup.mkdir(mode=0o700)
        sources = {CONFIG: config} | {name: self.places.workspace / name for name in BACKED_UP}
        files: dict[str, str] = {}
        for name, source in sources.items():
            for file in [source] if source.is_file() else sorted(source.rglob("*")):
                if file.is_file() and not file.is_symlink():
                    copy = name if file == source else f"{name}/{file.relative_to(source)}"
                    replace_private(self.places.backup / copy, data := file.read_bytes())
                    files[copy] = sha256(data)
        absent = tuple(str(folder) for folder in self.places.parents() if not folder.exists())
        self._write(Manifest(files, absent=absent))

    def note(self, placed: dict[Path, bytes]) -> None:
        """Record the files that are about to be copied into OpenClaw."""
        manifest = self.manifest() or Manifest({})
        added = {str(path): sha256(data) for path, data in placed.items()}
        self._write(Manifest(manifest.files, manifest.placed | added, manifest.absent))

    def config(self) -> bytes:
        """Read the copy of openclaw.json; raises `OwnerMustAct` if it was changed."""
        manifest = self.manifest()
        try:
            data = (self.places.backup / CONFIG).read_bytes()
        except OSError:
            data = b""
        if manifest is None or manifest.files.get(CONFIG) != sha256(data):
            raise OwnerMustAct(f"{self.places.backup / CONFIG} was changed; restore plugins.slots.memory by hand")
        return data

    def settings(self) -> Settings:
        """The settings in that copy."""
        return parsed(self.config().decode())

    def _write(self, manifest: Manifest) -> None:
        replace_private(self.places.backup / "manifest.json", as_json(_MANIFEST.dump_python(manifest, mode="json")))


def load_json(path: Path) -> dict[str, str]:
    """The texts of a small JSON object; empty if the file is missing or damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
