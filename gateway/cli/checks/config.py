"""The configuration: valid, and private when it holds secrets."""

import sys
from collections.abc import Iterator

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.config.edit import hidden
from gateway.config.failpoints import Failpoints
from gateway.config.load import parse_json, read
from gateway.domain.errors import ConfigError
from gateway.logs import SecretMask


def check_python(_patient: Patient, version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """Python is new enough."""
    text = f"Python {'.'.join(map(str, version))}"
    if version < (3, 11):
        yield Finding(Level.FAIL, "python", text, "install Python 3.11 or newer")
    else:
        yield Finding(Level.OK, "python", text)


def check_config(patient: Patient) -> Iterator[Finding]:
    """config.json can be used, and nobody else can read the secrets in it."""
    path = patient.environment.config
    if patient.problem:
        for line in str(patient.problem).splitlines():
            yield Finding(Level.FAIL, "config", line, f"mend {path}; `supaclaw config validate` checks it again")
    elif not path.exists():
        yield Finding(Level.OK, "config", f"no {path}, the defaults are used")
    elif _open_to_others(patient):
        fix = f'chmod 600 {path}, or put "$env:NAME" there and keep the secrets in the environment'
        yield Finding(Level.WARN, "config", f"other users can read the secrets in {path}", fix)
    else:
        yield Finding(Level.OK, "config", str(path))


def check_failpoint(patient: Patient) -> Iterator[Finding]:
    """No crash test is armed by mistake; where none is, there is nothing to say."""
    armed = patient.environment.fail
    try:
        Failpoints(armed)
    except ConfigError as error:
        fix = "unset SUPACLAW_FAIL, or see `supaclaw doctor --failpoints`"
        yield Finding(Level.FAIL, "failpoint", str(error), fix)
        return
    if armed:
        yield Finding(Level.WARN, "failpoint", f"the gateway will kill itself at {armed}", "unset SUPACLAW_FAIL")


def _open_to_others(patient: Patient) -> bool:
    path = patient.environment.config
    if not path.stat().st_mode & 0o077:
        return False
    raw = parse_json(read(path) or "{}", path.name)
    return hidden("", raw) != raw or SecretMask().value(raw) != raw
