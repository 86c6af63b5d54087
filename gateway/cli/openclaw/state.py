"""How far an installation has come, in `<workspace>/.supaclaw-install.json`."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.config.data.files import read_regular, replace_private
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import one_line

DATA = Path(__file__).parents[3] / "integrations" / "openclaw"
PLUGIN_FOLDER, HOOK_FOLDER, SKILL_FOLDER = "extensions", "hooks", "skills"
GUIDE = "SUPACLAW.md"

GUIDE_MARK = ("<!-- supaclaw:begin -->", "<!-- supaclaw:end -->")
SECTION = (
    f"{GUIDE_MARK[0]}\n## Memory\n\nYour long-term memory is SupaClaw. Read SUPACLAW.md: it says when to search "
    f"(`memory_search`) and what to keep (`memory_remember`).\n{GUIDE_MARK[1]}"
)
ADDED = f"\n\n{SECTION}\n"
"""What AGENTS.md gets at its end."""


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
    """The steps of taking it out again, in order."""

    CONFIG = "restore_config"
    FILES = "remove_files"
    TOKEN = "revoke_token"
    BACKUP = "remove_backup"


class Chosen(BaseModel):
    """What was asked for, and what the steps found out that removal has to know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workspacePath: str  # noqa: N815 - the names of the file
    openclawConfigPath: str  # noqa: N815
    stateDir: str  # noqa: N815
    hooks: bool = False
    shared: bool = False
    remote: bool = False
    layout: Literal["new", "old"] = "new"
    eligibleHooks: tuple[str, ...] = ()  # noqa: N815


class InstallState(BaseModel):
    """The file's content."""

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
        """The name of its token."""
        return f"openclaw {self.agentId}"

    def choose(self, **changes: object) -> None:
        """Note what a step has found out."""
        self.config = self.config.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class Places:
    """All files and folders that an installation touches."""

    workspace: Path
    state: Path

    @property
    def file(self) -> Path:
        """The file of the state."""
        return self.workspace / ".supaclaw-install.json"

    @property
    def backup(self) -> Path:
        """Private: openclaw.json holds keys."""
        return self.workspace / ".supaclaw-backup"

    @property
    def connection(self) -> Path:
        """The folder of the token, and of what could not be logged yet."""
        return self.state / "supaclaw"

    def load(self) -> InstallState | None:
        """None if nothing was begun; raises `OwnerMustAct` for a file that is not one of ours any more."""
        try:
            state = InstallState.model_validate_json(read_regular(self.file))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error.strerror)
            raise OwnerMustAct(
                f"{self.file} was changed by hand ({one_line(reason, 80)}); `supaclaw openclaw uninstall --force` "
                "takes everything out that is ours"
            ) from error
        chosen = state.config
        if (Path(chosen.workspacePath), Path(chosen.stateDir)) != (self.workspace, self.state):
            raise OwnerMustAct(
                f"{self.file} is about {chosen.workspacePath} and {chosen.stateDir}; "
                "give these by --workspace and --state"
            )
        return state

    def save(self, state: InstallState) -> None:
        """Durable: a kill leaves the old file or the new one."""
        replace_private(self.file, (state.model_dump_json(indent=2) + "\n").encode())

    def ours(self, *, hooks: bool) -> dict[Path, bytes]:
        """What is copied, by where it goes."""
        folders = {
            "memory-supaclaw": self.state / PLUGIN_FOLDER / "memory-supaclaw",
            "skill": self.workspace / SKILL_FOLDER / "supaclaw",
        }
        if hooks:
            folders |= {
                f"hooks/{name.name}": self.state / HOOK_FOLDER / name.name for name in (DATA / "hooks").iterdir()
            }
        found = {
            target / file.relative_to(DATA / name): file.read_bytes()
            for name, target in folders.items()
            for file in sorted((DATA / name).rglob("*"))
            if file.is_file()
        }
        client = (DATA / "memory-supaclaw" / "client.js").read_bytes()
        if hooks:  # which OpenClaw runs apart from the plugin
            found |= {self.state / HOOK_FOLDER / name.name / "client.js": client for name in (DATA / "hooks").iterdir()}
        return found | {self.workspace / GUIDE: (DATA / GUIDE).read_bytes()}

    def parents(self) -> list[Path]:
        """Folders of OpenClaw's that may be made for ours."""
        return [self.state / PLUGIN_FOLDER, self.state / HOOK_FOLDER, self.workspace / SKILL_FOLDER]


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def as_json(value: object) -> bytes:
    """A file's text."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
