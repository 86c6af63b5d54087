"""What `supaclaw doctor` looks at; each check only looks, and answers with findings."""

from collections.abc import Callable, Iterator, Mapping

import structlog

from gateway.cli.checks.channels import check_channels
from gateway.cli.checks.config import check_config, check_failpoint
from gateway.cli.checks.database import check_database
from gateway.cli.checks.finding import Check, Finding, Level, Patient, admit
from gateway.cli.checks.folders import check_disk, check_folders, check_keys
from gateway.cli.checks.machine import check_clock, check_jail, check_memory, check_port, check_python
from gateway.cli.checks.model import check_model

__all__ = ["CHECKS", "Finding", "Level", "Patient", "admit", "examine"]

CHECKS: Mapping[str, Check] = {
    "python": check_python,
    "config": check_config,
    "failpoint": check_failpoint,
    "folders": check_folders,
    "keys": check_keys,
    "disk": check_disk,
    "memory": check_memory,
    "clock": check_clock,
    "port": check_port,
    "database": check_database,
    "model": check_model,
    "channels": check_channels,
    "jail": check_jail,
}
"""In the order a start would meet what they find."""

NEED_THE_CONFIG = frozenset({"database", "model", "channels"})
"""What the defaults, which stand in for a wrong config.json, would say nothing true about."""

log = structlog.get_logger(__name__)


def examine(
    patient: Patient, begins: Callable[[str], None] = lambda _: None, checks: Mapping[str, Check] = CHECKS
) -> Iterator[tuple[str, Finding]]:
    """Every finding with the name of its check, which `begins` is told first. A check that breaks is a finding too."""
    for name, check in checks.items():
        begins(name)
        if patient.problem and name in NEED_THE_CONFIG:
            yield name, Finding(Level.WARN, "not looked at", "mend config.json first")
            continue
        try:
            for finding in check(patient):
                yield name, finding
        except Exception as error:
            log.exception("doctor.check_broke", check=name)
            text = f"this check broke: {' '.join(f'{type(error).__name__}: {error}'.split())}"
            yield name, Finding(Level.FAIL, text, "a defect of this program: please report it; the other checks count")
