from collections.abc import Iterator
from pathlib import Path

from gateway.app.checks import run_checks
from gateway.app.checks.context import CheckContext
from gateway.domain.health import Finding, FindingLevel
from tests.app.checks.contexts import context

FINE = Finding(FindingLevel.OK, "is well")


def fine(_: CheckContext) -> Iterator[Finding]:
    yield FINE


def broken(_: CheckContext) -> Iterator[Finding]:
    yield FINE
    raise RuntimeError("of\nour making")


def test_a_check_that_breaks_is_a_finding_and_the_others_are_made(tmp_path: Path) -> None:
    begun: list[str] = []

    found = list(run_checks(context(tmp_path), begun.append, {"one": broken, "two": fine}))

    (_, first), (name, broke), (_, last) = found
    assert first == last == FINE
    assert (name, broke.level, broke.text) == ("one", "fail", "this check crashed: RuntimeError: of our making")
    assert begun == ["one", "two"]


def test_with_a_wrong_config_what_depends_on_it_is_not_looked_at(tmp_path: Path) -> None:
    found = list(run_checks(context(tmp_path, "{"), checks={"model": broken, "disk": fine}))

    assert [(finding.level, finding.text) for _, finding in found] == [("warn", "not checked"), ("ok", "is well")]
