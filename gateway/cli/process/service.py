"""`supaclaw service`: run the gateway as a systemd service, confined."""

import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import flag
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment, check_only_agent
from gateway.domain.errors import OwnerMustAct

UNIT = "supaclaw.service"
STOP_SECONDS = 45
"""A gateway stops sooner: 10 seconds for turns, 10 for deliveries, 5 for the journal, then Postgres."""
WATCHDOG_SECONDS = 120
"""A gateway that hangs ends itself after 60 seconds; the watchdog ends one that can't."""
_NEWER_VERSION = 254
"""The first systemd that waits longer after each failure, and puts a service into a group below its own."""
_TEMPLATE = Path(__file__).with_name("supaclaw.service.j2")

ForUser = Annotated[bool | None, flag("Of your login, or of the machine (default for root).", "--user/--system")]


def install(user: ForUser = None, show: Annotated[bool, flag("Only print the unit.", "--print")] = False) -> None:
    """Start the gateway now and at every boot. Run it again after an update; it rewrites the unit."""
    environment = Environment.read(os.environ, starting=True)
    check_only_agent(os.environ, environment.data)
    systemd = _Systemd(os.geteuid() != 0 if user is None else user)
    account = None if systemd.user else _account(environment.data)
    unit = unit_text(environment, account, systemd.version())
    if show:
        echo(unit, end="")
        return
    systemd.check()
    if running_pid(environment.data) and not systemd.runs():
        raise OwnerMustAct(f"a gateway already runs on {environment.data}; `supaclaw down` first")
    if account:
        _make_owned_folder(environment.data)
        _make_owned_folder(environment.workspace)
    systemd.file.parent.mkdir(parents=True, exist_ok=True)
    systemd.file.write_text(unit, encoding="utf-8")
    systemd.file.chmod(0o644)
    for request in ("daemon-reload",), ("enable", UNIT), ("restart", UNIT):
        systemd.ask(*request)
    echo(f"{systemd.file} is installed and started; `{systemd.command} status supaclaw` shows its state")
    if systemd.user and not Path("/var/lib/systemd/linger", _name(os.geteuid())).exists():
        echo("it stops when you log out; `sudo loginctl enable-linger $USER` keeps it running and starts it at boot")


def uninstall(user: ForUser = None) -> None:
    """Stop the gateway and remove the service. The data is kept."""
    systemd = _Systemd(os.geteuid() != 0 if user is None else user)
    if not systemd.file.exists():
        echo("nothing was installed")
        return
    systemd.check()
    systemd.ask("disable", "--now", UNIT)
    systemd.file.unlink()
    systemd.ask("daemon-reload")
    echo(f"{systemd.file} is removed; the data is kept")


def active_service() -> str:
    """The option that names the service which runs the gateway of this login or machine; "" if none does."""
    return next((f"--{kind}" for kind in ("user", "system") if _Systemd(kind == "user").runs()), "")


def unit_text(environment: Environment, account: str | None, version: int) -> str:
    """The unit of this installation: a system unit that runs as `account`, or for None one of a login."""
    import jinja2

    language = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    unit: str = language.from_string(_TEMPLATE.read_text("utf-8")).render(
        environment.place._asdict(),
        account=account,
        env_file=_escaped(str(environment.config.with_name(".env"))),
        newer=version >= _NEWER_VERSION,
        python=_quoted(sys.executable).replace("$", "$$"),
        quoted=lambda value: _quoted(str(value)),
        stop=STOP_SECONDS,
        watchdog=WATCHDOG_SECONDS,
    )
    return unit


def _quoted(text: str) -> str:
    return '"' + _escaped(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    if not text.isprintable():
        raise OwnerMustAct(f"systemd can't handle {text!r}; move it to a path that can be printed")
    return text.replace("%", "%%")


@dataclass(frozen=True, slots=True)
class _Systemd:
    """The systemd of a login (`user`) or of the machine."""

    user: bool

    @property
    def file(self) -> Path:
        """The path of the unit."""
        if not self.user:
            return Path("/etc/systemd/system", UNIT)
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user" / UNIT

    @property
    def command(self) -> str:
        """The command that a person types."""
        return "systemctl --user" if self.user else "systemctl"

    def check(self) -> None:
        """Raise `OwnerMustAct` if it can't be used."""
        if self._run("is-system-running").stdout.strip() in {"", "offline", "unknown"}:
            whose = "of this login" if self.user else "on this machine"
            raise OwnerMustAct(f"there is no systemd {whose}; start `supaclaw up` with another service manager")
        if not self.user and os.geteuid() != 0:
            raise OwnerMustAct("only root can change system services; use sudo, or --user for your own login")

    def runs(self) -> bool:
        """Whether the unit is active."""
        return self._run("is-active", "--quiet", UNIT).returncode == 0

    def version(self) -> int:
        """The version of systemd; 0 if there is none."""
        words = self._run("--version").stdout.split()
        return int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0

    def ask(self, *arguments: str) -> None:
        """Run systemctl; raises `OwnerMustAct` with its message if it fails."""
        done = self._run(*arguments)
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:] or ["it does not say why"]
            raise OwnerMustAct(f"`{self.command} {' '.join(arguments)}` failed: {reason[0]}")

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        if (program := shutil.which("systemctl")) is None:
            return subprocess.CompletedProcess([], 1, "", "systemctl isn't available here")
        manager = ["--user"] if self.user else []
        return subprocess.run([program, *manager, *arguments], check=False, capture_output=True, encoding="utf-8")


def _account(data: Path) -> str:
    """The user who owns the data folder, or its nearest parent; raises `OwnerMustAct` if that is root."""
    owner = next(place for place in (data, *data.parents) if place.exists()).stat().st_uid
    if owner == 0:
        raise OwnerMustAct(f"{data} belongs to root; give it to a user of its own first, see docs/deploy.md")
    return _name(owner)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _make_owned_folder(folder: Path) -> None:
    """Create a folder with its parent's owner, since a confined service can't create it itself."""
    if not folder.exists():
        _make_owned_folder(folder.parent)
        owner = folder.parent.stat()
        folder.mkdir(mode=0o700)
        os.chown(folder, owner.st_uid, owner.st_gid)
