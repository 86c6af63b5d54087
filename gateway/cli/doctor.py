"""`supaclaw doctor`."""

import logging
import os
from typing import Annotated

import typer

from gateway.cli.checks import Finding, Level, examine
from gateway.cli.output import AsJson, print_json
from gateway.config.environment import Environment
from gateway.config.failpoints import Step
from gateway.logs import SecretMask, logging_to


def doctor(
    failpoints: Annotated[bool, typer.Option("--failpoints", help="List where SUPACLAW_FAIL can kill it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what keeps the gateway from working. Says what to do about each finding; exit code 1 if one is bad."""
    if failpoints:
        _print_failpoints(as_json=as_json)
        return
    with logging_to(None, SecretMask(), level=logging.ERROR):
        findings = list(examine(Environment.read(os.environ), os.environ))
    if as_json:
        print_json([{"level": f.level, "check": f.check, "text": f.text, "fix": f.fix} for f in findings])
    else:
        print("\n".join(map(_line, findings)))
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)


def _line(finding: Finding) -> str:
    fix = f"\n{'':16}→ {finding.fix}" if finding.fix else ""
    return f"{finding.level:4}  {finding.check:9} {finding.text}{fix}"


def _print_failpoints(*, as_json: bool) -> None:
    if as_json:
        print_json({step.value: step.about for step in Step})
    else:
        print("\n".join(f"{step.value:18} {step.about}" for step in Step))
