"""The installed OpenClaw: its program, and the edits of its settings, openclaw.json (these are pure)."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyjson5
from pydantic import JsonValue

from gateway.config.data.files import error_type, replace_private
from gateway.domain.errors import OwnerMustAct, raising
from gateway.domain.json import OBJECT, value_at
from gateway.domain.text.texts import one_line

PLUGIN: Final = "memory-supaclaw"
HOOKS: Final = ("supaclaw-logger", "supaclaw-bootstrap")
META: Final = "meta"
"""The key under which OpenClaw notes its own writes."""
TIMEOUT_SECONDS = 120.0
MIN_VERSION, TESTED_VERSION = "2026.9.0", "2026.9.6"
"""The oldest version that loads the plugin, as its package.json says, and the newest that was tried."""

Settings = dict[str, JsonValue]
_VERSION = re.compile(r"\b(20\d\d)\.(\d{1,2})\.(\d{1,3})\b")


@dataclass(frozen=True, slots=True)
class OpenClaw:
    """An installed OpenClaw: the path of its program, and its state folder."""

    program: str
    state: Path

    @classmethod
    def find(cls, state: Path) -> "OpenClaw":
        """Find the program on PATH; raises `OwnerMustAct` if it, its state or write access to it is missing."""
        if (program := shutil.which("openclaw")) is None:
            raise OwnerMustAct("there is no `openclaw` on PATH; install OpenClaw (`npm install -g openclaw`) first")
        if not state.is_dir():
            raise OwnerMustAct(f"OpenClaw has no state in {state}; run `openclaw setup`, or pass the folder as --state")
        if os.environ.get("OPENCLAW_CONFIG_READONLY") == "1" or os.environ.get("OPENCLAW_NIX_MODE") == "1":
            raise OwnerMustAct("OpenClaw's configuration is read-only (OPENCLAW_CONFIG_READONLY); change its source")
        return cls(program, state)

    @property
    def config(self) -> Path:
        """The path of openclaw.json, or of the file that OPENCLAW_CONFIG_PATH names."""
        return Path(os.environ.get("OPENCLAW_CONFIG_PATH") or self.state / "openclaw.json").resolve()

    def version(self) -> str:
        """Ask for the version, such as `2026.9.6`; raises `OwnerMustAct` if the program names none."""
        output = self._run("--version").stdout
        if (found := _VERSION.search(output)) is None:
            raise OwnerMustAct(
                f'{self.program} is not a supported version of OpenClaw ("{one_line(output, 60)}"); '
                f"install OpenClaw {TESTED_VERSION} or newer"
            )
        return found[0]

    def read(self) -> Settings:
        """Read the settings; raises `OwnerMustAct` if the file is missing or broken."""
        try:
            return parsed(self.config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise OwnerMustAct(f"{self.config} does not exist; run `openclaw setup` first") from None
        except (OSError, ValueError) as error:
            raise OwnerMustAct(f"{self.config} cannot be read ({one_line(str(error), 100)}); fix it first") from error

    def problem(self) -> str:
        """Ask OpenClaw why it rejects its settings; empty if it accepts them."""
        done = self._run("config", "validate", "--json")
        try:
            verdict = OBJECT.validate_python(json.loads(done.stdout))
        except ValueError:
            return one_line(done.stderr or done.stdout or f"exit code {done.returncode}", 300)
        if verdict.get("valid") is True:
            return ""
        issues = verdict.get("issues") or verdict.get("error") or "no reason given"
        return one_line(json.dumps(issues), 300)

    def write(self, data: bytes) -> None:
        """Replace openclaw.json; if OpenClaw rejects the new file, restore the old one and raise `OwnerMustAct`."""
        before, mode = self.config.read_bytes(), self.config.stat().st_mode & 0o777
        if data == before:
            return
        self._replace(data, mode)
        if problem := self.problem():
            self._replace(before, mode)
            raise OwnerMustAct(f"OpenClaw rejects the settings ({problem}); {self.config} is as it was")

    def inspected(self, plugin: str) -> dict[str, JsonValue]:
        """Let OpenClaw load the plugin and describe it; without an answer, `status` holds the error."""
        done = self._run("plugins", "inspect", plugin, "--runtime", "--json")
        try:
            return OBJECT.validate_python(json.loads(done.stdout)["plugin"])
        except (ValueError, LookupError, TypeError):
            return {"status": one_line(done.stderr or done.stdout or "nothing", 200)}

    def eligible_hooks(self) -> list[str]:
        """List the hooks that run as long as openclaw.json names none."""
        with raising(OwnerMustAct("`openclaw hooks list --json` fails; leave --hooks out"), ValueError):
            hooks = OBJECT.validate_python(json.loads(self._run("hooks", "list", "--json").stdout)).get("hooks")
        found = [OBJECT.validate_python(hook) for hook in hooks] if isinstance(hooks, list) else []
        return [str(hook["name"]) for hook in found if hook.get("eligible") and not hook.get("disabled")]

    def _replace(self, data: bytes, mode: int) -> None:
        try:
            replace_private(self.config, data, mode=mode)
        except OSError as error:
            raise error_type(error)(f"{self.config} cannot be written: {error.strerror}") from error

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [self.program, *arguments]
        env = os.environ | {"OPENCLAW_STATE_DIR": str(self.state), "NO_COLOR": "1"}
        try:
            return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=env, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OwnerMustAct(f"`{self.program} {arguments[0]}` does not run ({one_line(str(error), 200)})") from error


def parsed(text: str) -> Settings:
    """The object in a JSON5 text; raises `ValueError`, whose message quotes nothing of the text."""
    try:
        found = pyjson5.decode(text)
    except pyjson5.Json5DecoderException as error:
        raise ValueError(error.message) from None  # the exception holds the text, which holds keys
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - of the file
    return OBJECT.validate_python(found)


@dataclass(frozen=True, slots=True)
class Edit:
    """A value to set at a path; with `member`, a value to add to the list there, if there is one."""

    path: tuple[str, ...]
    value: JsonValue
    member: bool = False

    def apply(self, settings: Settings) -> None:
        """Make the edit; raises `ValueError` if a parent is not an object."""
        *parents, last = self.path
        place = settings
        for depth, name in enumerate(parents, start=1):
            below = place.get(name)
            if below is None:
                if self.member:
                    return
                below = place[name] = {}
            if not isinstance(below, dict):
                raise ValueError(f"{'.'.join(self.path[:depth])} is not an object")  # noqa: TRY004 - of the file
            place = below
        if not self.member:
            place[last] = self.value
        elif isinstance(entries := place.get(last), list) and self.value not in entries:
            entries.append(self.value)

    def undo(self, settings: Settings, before: Settings) -> None:
        """Restore the value of `before` unless it was changed since, and drop objects that the edit created."""
        parents = _chain(settings, self.path[:-1])
        if parents is None or self.path[-1] not in parents[-1]:
            return
        place, last, earlier = parents[-1], self.path[-1], value_at(before, self.path)
        entries = place[last]
        if self.member:
            if isinstance(entries, list) and not (isinstance(earlier, list) and self.value in earlier):
                place[last] = [each for each in entries if each != self.value]
            return
        if entries != self.value:
            return
        if earlier is None:
            del place[last]
        else:
            place[last] = earlier
        for depth in range(len(parents) - 1, 0, -1):
            if parents[depth] or value_at(before, self.path[:depth]) is not None:
                return
            del parents[depth - 1][self.path[depth - 1]]


def edited(settings: Settings, edits: Sequence[Edit]) -> Settings:
    """A copy of the settings with the edits made."""
    copy = deepcopy(settings)
    for edit in edits:
        edit.apply(copy)
    return copy


def undone(settings: Settings, before: Settings, edits: Sequence[Edit]) -> Settings:
    """A copy of the settings with the edits undone."""
    copy = deepcopy(settings)
    for edit in reversed(edits):
        edit.undo(copy, before)
    return copy


def same(one: Settings, other: Settings) -> bool:
    """Whether two settings are equal but for OpenClaw's own notes."""
    return {**one, META: None} == {**other, META: None}


def as_json(value: object) -> bytes:
    """A value in the form that OpenClaw writes."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def plugin_edits() -> list[Edit]:
    """Put the plugin into the memory slot."""
    entry = ("plugins", "entries", PLUGIN)
    return [
        Edit((*entry, "enabled"), True),
        Edit((*entry, "hooks", "allowConversationAccess"), True),
        Edit(("plugins", "slots", "memory"), PLUGIN),
        Edit(("plugins", "allow"), PLUGIN, member=True),
        Edit(("memory", "search", "enabled"), False),
    ]


def flush_edits() -> list[Edit]:
    """Have memories stored before a compaction; the prompt is the plugin's."""
    return [Edit(("agents", "defaults", "compaction", "memoryFlush", "enabled"), True)]


def hook_edits(eligible: Sequence[str]) -> list[Edit]:
    """Log by hooks, not by the plugin; `eligible` hooks run until a list of names exists, so it names them."""
    entries = ("hooks", "internal", "entries")
    plugin = ("plugins", "entries", PLUGIN, "config")
    return [
        Edit(("hooks", "internal", "enabled"), True),
        *(Edit((*entries, name, "enabled"), True) for name in (*eligible, *HOOKS)),
        Edit((*plugin, "log"), False),
        Edit((*plugin, "bootstrap"), False),
    ]


def all_edits(eligible: Sequence[str], *, hooks: bool) -> list[Edit]:
    """All edits that an installation may have made."""
    return [*plugin_edits(), *flush_edits(), *(hook_edits(eligible) if hooks else [])]


def discovers_hooks(settings: Settings) -> bool:
    """Whether OpenClaw runs all hooks that it finds, since no list names them."""
    internal = value_at(settings, ("hooks", "internal"))
    return isinstance(internal, dict) and internal.get("enabled") is True and not internal.get("entries")


def _chain(settings: Settings, path: Sequence[str]) -> list[Settings] | None:
    """The objects along the path, the outermost first; None if one is missing."""
    chain = [settings]
    for name in path:
        below = chain[-1].get(name)
        if not isinstance(below, dict):
            return None
        chain.append(below)
    return chain
