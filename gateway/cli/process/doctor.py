"""`supaclaw doctor`: check the installation."""

import logging
import os
import shutil
import tempfile
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gateway.app.installation import program_of
from gateway.cli.connections.local_gateway import ask_gateway
from gateway.cli.process.update import rehearse
from gateway.cli.storage.backup import saved_place
from gateway.cli.terminal.console import Style, echo, show_progress
from gateway.cli.terminal.output import AsJson, flag, option, print_json, print_result
from gateway.config.environment import Environment
from gateway.config.failpoints import Step
from gateway.domain.health import Finding, FindingLevel
from gateway.logs import SecretMask, logging_to

_MAX_WIDTH = 110
_REQUEUE_SECONDS = 120.0
_COLOURS = {FindingLevel.OK: Style.GREEN, FindingLevel.WARN: Style.YELLOW, FindingLevel.FAIL: Style.RED}

_DRILL = "Restore a backup into a copy, start that and talk to it."
Drill = Annotated[str | None, option(_DRILL, "FILE", "--restore-drill", parser=saved_place)]


def doctor(
    failpoints: Annotated[bool, flag("List the points where SUPACLAW_FAIL kills the gateway.", "--failpoints")] = False,
    live: Annotated[bool, flag("Also call the model (costs a few tokens) and the messengers.", "--live")] = False,
    requeue: Annotated[bool, flag("Let the running gateway retry messages it couldn't store.", "--requeue")] = False,
    drill: Drill = None,
    as_json: AsJson = False,
) -> None:
    """Find what keeps the gateway from working, and how to fix it. The exit code is 1 if a check fails.

    It doesn't start, change or send anything, except with --requeue.
    """
    if requeue:
        result = ask_gateway("/api/requeue", method="POST", timeout=_REQUEUE_SECONDS)
        print_result(result, f"messages stored again: {result['requeued']}", as_json=as_json)
        return
    if failpoints:
        steps = {step.value: step.about for step in Step}
        print_result(steps, "\n".join(f"{name:18} {about}" for name, about in steps.items()), as_json=as_json)
        return
    if drill:
        from gateway.app.storage.scheduled import fetched

        with fetched(Environment.read(os.environ), drill) as backup, tempfile.TemporaryDirectory() as folder:
            rehearse(program_of(), backup.resolve(), Path(folder))
        echo(f"{drill} was restored into a copy, which started and answered")
        return
    from gateway.app.checks import load_context, run_checks
    from gateway.app.checks.stored import lookup_if_running

    environment = Environment.read(os.environ)
    context = load_context(environment, os.environ, live=live, secrets=lookup_if_running(environment, os.environ))
    with logging_to(None, SecretMask(), level=logging.CRITICAL):
        findings = list(run_checks(context, lambda check: show_progress(f"checking {check} …")))
    show_progress("")
    if as_json:
        print_json([{"check": name, **asdict(finding)} for name, finding in findings])
    else:
        _print_findings(findings)
    if any(finding.level is FindingLevel.FAIL for _, finding in findings):
        raise typer.Exit(1)


def _print_findings(findings: Sequence[tuple[str, Finding]]) -> None:
    """Print the level, the check and the finding of each, with the fix below, then the counts."""
    mask, width = SecretMask(), min(shutil.get_terminal_size().columns, _MAX_WIDTH)
    wrap = textwrap.TextWrapper(max(width, 50), "", " " * 16, break_long_words=False, break_on_hyphens=False)
    for name, finding in findings:
        fix = [] if not finding.fix else wrap.wrap(f"{'':16}→ {finding.fix}")
        text = "\n".join([*wrap.wrap(f"{finding.level:4}  {name:9} {finding.text}"), *fix])
        echo(mask.text(text[4:]), lead=text[:4], style=_COLOURS[finding.level])
    counts = Counter(finding.level for _, finding in findings)
    echo(f"\n{counts[FindingLevel.FAIL]} failed, {counts[FindingLevel.WARN]} warnings, {counts[FindingLevel.OK]} ok")
