"""The checks of `supaclaw doctor` and the Health page; each is read-only and yields findings."""

from collections.abc import Callable, Iterator, Mapping

import structlog

from gateway.app.checks.connections import check_channels, check_model, check_workspace
from gateway.app.checks.context import Check, CheckContext, fail, load_context, warn
from gateway.app.checks.database import check_database
from gateway.app.checks.installation import (
    check_config,
    check_disk,
    check_failpoint,
    check_folders,
    check_keys,
    check_packages,
    check_update,
)
from gateway.app.checks.machine import check_clock, check_exec, check_jail, check_memory, check_port, check_python
from gateway.app.checks.stored import check_secrets, check_tools
from gateway.domain.health import Finding

__all__ = ["CHECKS", "CheckContext", "load_context", "run_checks"]

CHECKS: Mapping[str, Check] = {
    "python": check_python,
    "packages": check_packages,
    "update": check_update,
    "config": check_config,
    "failpoint": check_failpoint,
    "folders": check_folders,
    "keys": check_keys,
    "disk": check_disk,
    "memory": check_memory,
    "clock": check_clock,
    "port": check_port,
    "database": check_database,
    "secrets": check_secrets,
    "tools": check_tools,
    "workspace": check_workspace,
    "model": check_model,
    "channels": check_channels,
    "jail": check_jail,
    "exec": check_exec,
}
"""All checks, in the order in which a start would meet the problems."""

NEED_THE_CONFIG = frozenset({"database", "tools", "workspace", "model", "channels"})
"""Checks that would mislead if they ran on the defaults in place of an invalid config.json."""

log = structlog.get_logger(__name__)


def run_checks(
    context: CheckContext, begins: Callable[[str], None] = lambda _: None, checks: Mapping[str, Check] = CHECKS
) -> Iterator[tuple[str, Finding]]:
    """Yield each finding with its check's name; calls `begins` before each check. A crashed check is a finding too."""
    for name, check in checks.items():
        begins(name)
        if context.problem and name in NEED_THE_CONFIG:
            yield name, warn("not checked", "fix config.json first")
            continue
        try:
            for finding in check(context):
                yield name, finding
        except Exception as error:
            log.exception("doctor.check_broke", check=name)
            text = f"this check crashed: {' '.join(f'{type(error).__name__}: {error}'.split())}"
            yield name, fail(text, "a bug in this program: please report it; the other checks are valid")
