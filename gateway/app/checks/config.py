"""The configuration: valid, private if it holds secrets, no crash test armed."""

from collections.abc import Iterator
from pathlib import Path

from gateway.app.checks.context import CheckContext
from gateway.config.editing.hidden import masked
from gateway.config.failpoints import Failpoints
from gateway.config.load import parse_json, read
from gateway.domain.errors import ConfigError
from gateway.domain.findings import Finding, Level
from gateway.logs import SecretMask


def check_config(context: CheckContext) -> Iterator[Finding]:
    """config.json is valid, and nobody else can read its secrets."""
    path = context.environment.config
    if context.problem:
        for line in str(context.problem).splitlines():
            yield Finding(Level.FAIL, line, f"fix {path}; `supaclaw config validate` checks it again")
    elif not path.exists():
        yield Finding(Level.OK, f"no {path}, the defaults are used")
    elif path.stat().st_mode & 0o077 and _holds_secrets(path):
        fix = f'chmod 600 {path}, or put "$env:NAME" there and keep the secrets in the environment'
        yield Finding(Level.WARN, f"other users can read the secrets in {path}", fix)
    else:
        yield Finding(Level.OK, str(path))


def check_failpoint(context: CheckContext) -> Iterator[Finding]:
    """Warn about an armed crash test; yields nothing otherwise."""
    armed = context.environment.fail
    try:
        Failpoints(armed)
    except ConfigError as error:
        yield Finding(Level.FAIL, str(error), "unset SUPACLAW_FAIL, or see `supaclaw doctor --failpoints`")
        return
    if armed:
        yield Finding(Level.WARN, f"the gateway will kill itself at {armed}", "unset SUPACLAW_FAIL")


def _holds_secrets(path: Path) -> bool:
    raw = parse_json(read(path) or "{}", path.name)
    return masked(raw) != raw or SecretMask().value(raw) != raw
