from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.checks import examine
from gateway.cli.checks.finding import Finding, Level, Patient
from tests.cli.checks.patients import patient

FINE = Finding(Level.OK, "fine", "is well")


def fine(_: Patient) -> Iterator[Finding]:
    yield FINE


def broken(_: Patient) -> Iterator[Finding]:
    yield FINE
    raise RuntimeError("of\nour making")


def test_a_check_that_breaks_is_a_finding_and_the_others_are_made(tmp_path: Path) -> None:
    begun: list[str] = []

    found = list(examine(patient(tmp_path), begun.append, {"one": broken, "two": fine}))

    assert found[0] == found[2] == FINE
    assert (found[1].level, found[1].check) == ("fail", "one")
    assert found[1].text == "this check broke: RuntimeError: of our making"
    assert begun == ["one", "two"]


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    def interrupted(_: Patient) -> Iterator[Finding]:
        raise KeyboardInterrupt
        yield FINE

    with pytest.raises(KeyboardInterrupt):
        list(examine(patient(tmp_path), checks={"one": interrupted}))


def test_with_a_wrong_config_what_depends_on_it_is_not_looked_at(tmp_path: Path) -> None:
    found = list(examine(patient(tmp_path, "{"), checks={"model": broken, "disk": fine}))

    assert [(finding.level, finding.text) for finding in found] == [("warn", "not looked at"), ("ok", "is well")]
