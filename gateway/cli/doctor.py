"""`supaclaw doctor`."""

import logging
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from gateway.cli.checks import Finding, Level, admit, examine
from gateway.cli.output import AsJson, print_json
from gateway.config.environment import Environment
from gateway.config.failpoints import Step
from gateway.logs import SecretMask, logging_to

_WIDEST = 110
_COLOURS = {Level.OK: "32", Level.WARN: "33", Level.FAIL: "31"}


def doctor(
    failpoints: Annotated[bool, typer.Option("--failpoints", help="List where SUPACLAW_FAIL can kill it.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Really ask the model, which costs a few tokens, and the messengers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find what keeps the gateway from working. Says what to do about each finding; exit code 1 if one is bad.

    It only looks: nothing is started, changed or sent.
    """
    if failpoints:
        _print_failpoints(as_json=as_json)
        return
    patient = admit(Environment.read(os.environ), os.environ, live=live)
    with logging_to(None, SecretMask(), level=logging.CRITICAL):
        findings = list(examine(patient, _progress))
    _progress("")
    if as_json:
        print_json([{"level": f.level, "check": f.check, "text": f.text, "fix": f.fix} for f in findings])
    else:
        _print_findings(findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)


def _progress(check: str) -> None:
    """Say on a terminal what is being looked at, in one line that is written over."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{f'looking at: {check} …' if check else ''}", end="", file=sys.stderr, flush=True)


def _print_findings(findings: Sequence[Finding]) -> None:
    mask, width = SecretMask(), min(shutil.get_terminal_size().columns, _WIDEST)
    for finding in findings:
        print(mask.text(_told(finding, width)))
    counts = Counter(finding.level for finding in findings)
    print(f"\n{counts[Level.FAIL]} failed, {counts[Level.WARN]} to think about, {counts[Level.OK]} fine")


def _told(finding: Finding, width: int) -> str:
    """The level, what was looked at, what was seen; below it what to do."""
    head = f"{finding.level:4}  {finding.check:11} "
    indent, room = " " * len(head), max(width - len(head), 30)
    text = textwrap.wrap(finding.text, room, break_long_words=False, break_on_hyphens=False)
    fix = textwrap.wrap(f"→ {finding.fix}" if finding.fix else "", room, break_long_words=False, break_on_hyphens=False)
    return _coloured(finding.level) + head[4:] + f"\n{indent}".join([*text, *fix])


def _coloured(level: Level) -> str:
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[{_COLOURS[level]}m{level:4}\x1b[0m"
    return f"{level:4}"


def _print_failpoints(*, as_json: bool) -> None:
    if as_json:
        print_json({step.value: step.about for step in Step})
    else:
        print("\n".join(f"{step.value:18} {step.about}" for step in Step))
