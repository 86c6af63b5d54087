"""What `supaclaw doctor` looks at, a file a field; each check only looks, and answers with findings."""

from collections.abc import Callable, Iterator, Mapping

from gateway.cli.checks.channels import check_channels
from gateway.cli.checks.config import check_config, check_failpoint, check_python
from gateway.cli.checks.database import check_database
from gateway.cli.checks.disk import check_disk
from gateway.cli.checks.finding import Check, Finding, Level, Patient, admit
from gateway.cli.checks.folders import check_checkpoints, check_data, check_health, check_keys, check_workspace
from gateway.cli.checks.isolation import findings_of
from gateway.cli.checks.jail import check_jail
from gateway.cli.checks.machine import check_clock, check_memory, check_open_files, check_port
from gateway.cli.checks.model import check_model

__all__ = ["CHECKS", "Finding", "Level", "Patient", "admit", "examine"]

CHECKS: Mapping[str, Check] = {
    "python": check_python,
    "config": check_config,
    "failpoint": check_failpoint,
    "data": check_data,
    "keys": check_keys,
    "workspace": check_workspace,
    "disk": check_disk,
    "memory": check_memory,
    "open files": check_open_files,
    "clock": check_clock,
    "port": check_port,
    "database": check_database,
    "health": check_health,
    "model": check_model,
    "channels": check_channels,
    "checkpoints": check_checkpoints,
    "jail": check_jail,
}
"""In the order a start would meet what they find."""

NEED_THE_CONFIG = frozenset({"database", "model", "channels", "checkpoints"})
"""What the defaults, which stand in for a wrong config.json, would say nothing true about."""


def examine(
    patient: Patient, begins: Callable[[str], None] = lambda _: None, checks: Mapping[str, Check] = CHECKS
) -> Iterator[Finding]:
    """Every finding; `begins` is told the name of each check before it is made. Never raises for what a check does."""
    for name, check in checks.items():
        begins(name)
        if patient.problem and name in NEED_THE_CONFIG:
            yield Finding(Level.WARN, name, "not looked at", "mend config.json first")
        else:
            yield from findings_of(name, check, patient)
