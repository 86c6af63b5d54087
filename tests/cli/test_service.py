import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.process.service import WATCHDOG_SECONDS, unit_text
from gateway.config.environment import Environment
from tests.cli.conftest import Supaclaw
from tests.cli.test_down import gateway

MODERN = 257
ODD = Path('/srv/my "50%" $HOME \\ claw')


class Systemctl:
    """A systemctl that keeps what it was asked; `state` is what the system is said to be."""

    def __init__(self, folder: Path) -> None:
        self.asked = folder / "asked"
        self.program = folder / "systemctl"
        self.say()

    def say(self, state: str = "running", version: int = 252, refuses: str = "none", active: bool = False) -> None:
        self.program.write_text(
            "#!/bin/sh\n"
            f'echo "$*" >> {self.asked}\n'
            'case "$*" in\n'
            f"  *{refuses}*) echo 'Failed to do it' >&2; exit 1 ;;\n"
            f"  *is-system-running) echo {state} ;;\n"
            f"  *is-active*) exit {int(not active)} ;;\n"
            f"  *--version) echo 'systemd {version} ({version}.1-1)' ;;\n"
            "esac\n"
        )
        self.program.chmod(0o755)

    @property
    def orders(self) -> list[str]:
        """What changed something."""
        asked = self.asked.read_text().splitlines() if self.asked.exists() else []
        return [line for line in asked if not any(word in line for word in ("is-", "--version"))]


@pytest.fixture
def systemctl(place: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    bin = place / "bin"
    bin.mkdir()
    monkeypatch.setenv("PATH", f"{bin}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "home"))
    return Systemctl(bin)


@pytest.fixture
def unit(place: Path) -> Path:
    return place / "home" / "systemd" / "user" / "supaclaw.service"


def test_a_login_gets_a_unit_that_is_started_and_starts_again(
    supaclaw: Supaclaw, systemctl: Systemctl, unit: Path
) -> None:
    done = supaclaw("service", "install", "--user")

    assert done.code == 0
    assert systemctl.orders == [
        "--user daemon-reload",
        "--user enable supaclaw.service",
        "--user restart supaclaw.service",
    ]
    assert "WantedBy=default.target" in unit.read_text()
    assert "enable-linger" in done.out


def test_installing_twice_leaves_one_and_uninstalling_none(
    supaclaw: Supaclaw, systemctl: Systemctl, unit: Path
) -> None:
    assert supaclaw("service", "install", "--user").code == 0
    assert supaclaw("service", "install", "--user").code == 0
    done = supaclaw("service", "uninstall", "--user")

    assert (done.code, unit.exists()) == (0, False)
    assert systemctl.orders[-2:] == ["--user disable --now supaclaw.service", "--user daemon-reload"]
    assert supaclaw("service", "uninstall", "--user").out == "nothing was installed\n"


def test_it_can_be_looked_at_first(supaclaw: Supaclaw, systemctl: Systemctl, unit: Path) -> None:
    done = supaclaw("service", "install", "--user", "--print")

    assert done.out.startswith("[Unit]\n")
    assert systemctl.orders == []
    assert not unit.exists()


@pytest.mark.parametrize("state", ["offline", "unknown", ""])
def test_without_systemd_nothing_is_installed(supaclaw: Supaclaw, systemctl: Systemctl, unit: Path, state: str) -> None:
    systemctl.say(state=state)
    done = supaclaw("service", "install", "--user")

    assert done.code == 1
    assert "there is no systemd of this login" in done.err
    assert not unit.exists()


def test_without_systemctl_neither(supaclaw: Supaclaw, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert systemctl.program.exists()

    assert "there is no systemd" in supaclaw("service", "install", "--user").err


def test_what_systemd_refuses_is_told(supaclaw: Supaclaw, systemctl: Systemctl) -> None:
    systemctl.say(refuses="restart")

    assert (
        "`systemctl --user restart supaclaw.service` failed: Failed to do it"
        in supaclaw("service", "install", "--user").err
    )


def test_a_gateway_started_by_hand_has_to_go_first(
    supaclaw: Supaclaw, systemctl: Systemctl, place: Path, unit: Path
) -> None:
    with gateway(place / "data", "polite"):
        done = supaclaw("service", "install", "--user")
        assert (done.code, unit.exists()) == (1, False)
        assert "`supaclaw down` first" in done.err

        systemctl.say(active=True)
        assert supaclaw("service", "install", "--user").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has root's folders")
def test_the_gateway_of_a_machine_is_not_run_as_root(supaclaw: Supaclaw, systemctl: Systemctl, place: Path) -> None:
    assert f"{place}/data belongs to root" in supaclaw("service", "install", "--system").err

    (place / "data").mkdir()
    os.chown(place / "data", 65534, 65534)
    done = supaclaw("service", "install", "--system", "--print")
    assert f'User=nobody\nProtectSystem=strict\nProtectHome=read-only\nReadWritePaths="{place}/data"' in done.out
    assert systemctl.orders == []


@pytest.mark.parametrize("account", [None, "daemon"])
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_either(tmp_path: Path, account: str | None) -> None:
    file = tmp_path / "supaclaw.service"
    environment = Environment(ODD / "config.json", ODD / "data", ODD / "workspace")
    file.write_text(unit_text(environment, account, 0))
    told = subprocess.run(["systemd-analyze", "verify", "--man=no", file], check=False, capture_output=True, text=True)

    assert [line for line in told.stderr.splitlines() if "supaclaw" in line] == []
    assert told.returncode == 0


def test_paths_are_told_as_systemd_reads_them() -> None:
    text = unit_text(Environment(ODD / "config.json", ODD / "data", ODD / "workspace"), "ada", MODERN)

    assert r'Environment="SUPACLAW_DATA=/srv/my \"50%%\" $HOME \\ claw/data"' in text
    assert r"EnvironmentFile=-/srv/my " + '"50%%" $HOME \\ claw/.env' in text
    assert f'ExecStart="{sys.executable}" -P -m gateway up\n' in text


def test_systemd_waits_until_it_is_ready_and_sees_when_it_is_dead() -> None:
    text = unit_text(Environment.read(os.environ), None, MODERN)

    assert "Type=notify\nTimeoutStartSec=infinity\n" in text
    assert f"WatchdogSec={WATCHDOG_SECONDS}\n" in text
    assert WATCHDOG_SECONDS > 60 + 10, "the gateway itself comes first, and says in its log what hangs"


def test_only_a_systemd_that_can_waits_longer_each_time() -> None:
    environment = Environment.read(os.environ)

    assert "RestartSteps" in unit_text(environment, None, MODERN)
    assert "RestartSteps" not in unit_text(environment, None, 252)


@pytest.mark.parametrize("account", [None, "daemon"])
def test_it_may_make_groups_for_commands_beside_its_own(account: str | None) -> None:
    text = unit_text(Environment.read(os.environ), account, MODERN)

    assert "\nDelegate=memory pids\nDelegateSubgroup=gateway\n" in text
    assert "ProtectControlGroups" not in text
    assert "Delegate" not in unit_text(Environment.read(os.environ), account, 252), "it would have to leave its own"


def test_a_path_with_a_line_break_is_refused(supaclaw: Supaclaw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPACLAW_DATA", "/srv/a\nb")

    assert "can't handle" in supaclaw("service", "install", "--user", "--print").err
