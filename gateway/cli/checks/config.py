"""The configuration: valid, private when it holds secrets, no crash test left armed."""

from collections.abc import Iterator
from pathlib import Path

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.config.edit import hidden
from gateway.config.failpoints import Failpoints
from gateway.config.load import parse_json, read
from gateway.domain.errors import ConfigError
from gateway.logs import SecretMask


def check_config(patient: Patient) -> Iterator[Finding]:
    """config.json can be used, and nobody else can read the secrets in it."""
    path = patient.environment.config
    if patient.problem:
        for line in str(patient.problem).splitlines():
            yield Finding(Level.FAIL, line, f"mend {path}; `supaclaw config validate` checks it again")
    elif not path.exists():
        yield Finding(Level.OK, f"no {path}, the defaults are used")
    elif path.stat().st_mode & 0o077 and _holds_secrets(path):
        fix = f'chmod 600 {path}, or put "$env:NAME" there and keep the secrets in the environment'
        yield Finding(Level.WARN, f"other users can read the secrets in {path}", fix)
    else:
        yield Finding(Level.OK, str(path))


def check_failpoint(patient: Patient) -> Iterator[Finding]:
    """Where no crash test is armed there is nothing to say."""
    armed = patient.environment.fail
    try:
        Failpoints(armed)
    except ConfigError as error:
        yield Finding(Level.FAIL, str(error), "unset SUPACLAW_FAIL, or see `supaclaw doctor --failpoints`")
        return
    if armed:
        yield Finding(Level.WARN, f"the gateway will kill itself at {armed}", "unset SUPACLAW_FAIL")


def _holds_secrets(path: Path) -> bool:
    raw = parse_json(read(path) or "{}", path.name)
    return hidden("", raw) != raw or SecretMask().value(raw) != raw
