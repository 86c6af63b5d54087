"""The installed OpenClaw: its version, its check of openclaw.json, and what it says about a plugin."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, TypeAdapter

from gateway.cli.openclaw.settings import Settings, parsed
from gateway.config.data.files import error_type, replace_private
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import one_line

SECONDS = 120.0
TESTED = "2026.9.6"
_VERSION = re.compile(r"\b(20\d\d)\.(\d{1,2})\.(\d{1,3})\b")
_OBJECT = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class OpenClaw:
    """An installation: the program, and the folder of its state."""

    program: str
    state: Path

    @classmethod
    def find(cls, state: Path) -> "OpenClaw":
        """The one on PATH; raises `OwnerMustAct` if there is none."""
        if (program := shutil.which("openclaw")) is None:
            raise OwnerMustAct("there is no `openclaw` on PATH; install OpenClaw (`npm install -g openclaw`) first")
        if not state.is_dir():
            raise OwnerMustAct(f"OpenClaw has no state in {state}; run `openclaw setup`, or give the folder by --state")
        if os.environ.get("OPENCLAW_CONFIG_READONLY") == "1" or os.environ.get("OPENCLAW_NIX_MODE") == "1":
            raise OwnerMustAct(
                "OpenClaw's configuration is read-only here (OPENCLAW_CONFIG_READONLY); change its source"
            )
        return cls(program, state)

    @property
    def config(self) -> Path:
        """The file openclaw.json; OPENCLAW_CONFIG_PATH may say where."""
        return Path(os.environ.get("OPENCLAW_CONFIG_PATH") or self.state / "openclaw.json").resolve()

    def version(self) -> str:
        """As `2026.9.6`; raises `OwnerMustAct` for a program that doesn't tell."""
        told = self._run("--version").stdout
        if (found := _VERSION.search(told)) is None:
            raise OwnerMustAct(
                f'{self.program} is no version of OpenClaw that is known ("{one_line(told, 60)}"); '
                f"install OpenClaw {TESTED} or newer"
            )
        return found[0]

    def read(self) -> Settings:
        """Its settings; raises `OwnerMustAct` for a missing or broken file."""
        try:
            return parsed(self.config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise OwnerMustAct(f"{self.config} does not exist; run `openclaw setup` first") from None
        except (OSError, ValueError) as error:
            raise OwnerMustAct(
                f"{self.config} cannot be read ({one_line(str(error), 100)}); repair it first"
            ) from error

    def problem(self) -> str:
        """Why OpenClaw rejects its settings; "" if it takes them."""
        done = self._run("config", "validate", "--json")
        try:
            verdict = _OBJECT.validate_python(json.loads(done.stdout))
        except ValueError:
            return one_line(done.stderr or done.stdout or f"exit code {done.returncode}", 300)
        if verdict.get("valid") is True:
            return ""
        issues = verdict.get("issues") or verdict.get("error") or "no reason given"
        return one_line(json.dumps(issues), 300)

    def write(self, data: bytes) -> None:
        """Replace openclaw.json, and put the old one back if OpenClaw rejects the new one, with `OwnerMustAct`."""
        before, mode = self.config.read_bytes(), self.config.stat().st_mode & 0o777
        if data == before:
            return
        self._replace(data, mode)
        if problem := self.problem():
            self._replace(before, mode)
            raise OwnerMustAct(f"OpenClaw rejects the settings ({problem}); {self.config} is as it was")

    def inspected(self, plugin: str) -> dict[str, JsonValue]:
        """What OpenClaw says of the plugin once it has loaded it."""
        done = self._run("plugins", "inspect", plugin, "--runtime", "--json")
        try:
            found = _OBJECT.validate_python(json.loads(done.stdout)).get("plugin")
            return _OBJECT.validate_python(found)
        except ValueError:
            return {"status": one_line(done.stderr or done.stdout or "nothing", 200)}

    def eligible_hooks(self) -> list[str]:
        """The hooks that run while no list names any."""
        try:
            hooks = _OBJECT.validate_python(json.loads(self._run("hooks", "list", "--json").stdout)).get("hooks")
        except ValueError:
            raise OwnerMustAct("`openclaw hooks list --json` does not answer; leave --hooks out") from None
        found = [_OBJECT.validate_python(hook) for hook in hooks] if isinstance(hooks, list) else []
        return [str(hook["name"]) for hook in found if hook.get("eligible") and not hook.get("disabled")]

    def _replace(self, data: bytes, mode: int) -> None:
        try:
            replace_private(self.config, data)
            self.config.chmod(mode)
        except OSError as error:
            raise error_type(error)(f"{self.config} cannot be written: {error.strerror}") from error

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"OPENCLAW_STATE_DIR": str(self.state), "NO_COLOR": "1"}
        try:
            return subprocess.run(
                [self.program, *arguments], capture_output=True, text=True, timeout=SECONDS, env=environ, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OwnerMustAct(f"`{self.program} {arguments[0]}` does not run ({one_line(str(error), 200)})") from error
