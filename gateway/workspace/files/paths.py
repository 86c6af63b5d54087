"""Validates paths inside the workspace; pure, without file access."""

import unicodedata
from dataclasses import dataclass

from gateway.domain.errors import SupaclawError

MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
MAX_LEVELS = 600
"""Of folders that are walked; a path that tools take has at most 512."""
READ_ONLY = frozenset({"sessions", "memory"})
"""Top-level folders that only the gateway writes to."""
INSTRUCTIONS = frozenset({".agents", "agents.md", "soul.md", "tools.md", "user.md", "heartbeat.md"})
"""Top-level names of the agent's instructions."""

_JOINERS = frozenset("\u200c\u200d")
_FILLERS = frozenset("\u115f\u1160")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class WorkspaceError(SupaclawError):
    """A file operation failed; `code` names the kind, the text says what would work."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code: str = code


@dataclass(frozen=True, slots=True)
class WorkspacePath:
    """A normalised relative path; without parts it is the workspace root."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "WorkspacePath":
        """Normalise to NFC and validate; raises `WorkspaceError` with code `bad_path`."""
        _check_text(text)
        parts = tuple(part for part in unicodedata.normalize("NFC", text).split("/") if part not in {"", "."})
        for part in parts:
            _check_name(part)
        if len("/".join(parts).encode()) > MAX_PATH_BYTES:
            raise _refused(f"The path is longer than {MAX_PATH_BYTES} bytes; use a shorter one.")
        return cls(parts)

    @property
    def name(self) -> str:
        """The last part; empty for the root."""
        return self.parts[-1] if self.parts else ""

    @property
    def parents(self) -> tuple[str, ...]:
        """All parts but the last."""
        return self.parts[:-1]

    @property
    def read_only(self) -> bool:
        """Whether it is in a folder that only the gateway writes to; ignores case, as some file systems do."""
        return bool(self.parts) and folded(self.parts[0]) in READ_ONLY

    @property
    def is_instructions(self) -> bool:
        """Whether the agent follows this file as instructions; ignores case, as some file systems do."""
        return bool(self.parts) and folded(self.parts[0]) in INSTRUCTIONS

    def __str__(self) -> str:
        return "/".join(self.parts) or "."


def folded(name: str) -> str:
    """The name as the most lenient file system compares it: without case, accents, what is invisible, final dots."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(char for char in plain if char.isprintable() and not _ignored(char)).rstrip(". ")


def _ignored(char: str) -> bool:
    return unicodedata.category(char).startswith("M") or char in _FILLERS


def _check_text(text: str) -> None:
    if text.startswith(("/", "~/")):
        raise _refused(f"{text[:80]!r} is not relative; name files from the workspace root, like notes/ideas.md.")
    if "\\" in text:
        raise _refused("A backslash is not allowed in a path; separate folders with /, like notes/ideas.md.")
    if any(unicodedata.category(char) in _HIDDEN and char not in _JOINERS for char in text):
        raise _refused("The path contains a control or invisible character; use letters, digits, '-', '_' and '.'.")


def _check_name(name: str) -> None:
    if name == "..":
        raise _refused("'..' is not allowed; name files from the workspace root, like notes/ideas.md.")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise _refused(f"A name is longer than {MAX_NAME_BYTES} bytes; use a shorter one.")


def _refused(message: str) -> WorkspaceError:
    return WorkspaceError("bad_path", message)
