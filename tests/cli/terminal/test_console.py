import errno
import os

import pytest

from gateway.cli.terminal.console import print_error
from gateway.domain.errors import ConfigError, OwnerMustAct


def told(error: BaseException, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_error(type(error), error, None)
    return capsys.readouterr().err.splitlines()


def test_every_line_of_our_errors_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(ConfigError("a: wrong\nb: wrong"), capsys) == ["supaclaw: a: wrong", "supaclaw: b: wrong"]


def test_errors_of_parallel_tasks_are_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    group = BaseExceptionGroup("", [OwnerMustAct("one"), ExceptionGroup("", [OwnerMustAct("two")])])

    assert told(group, capsys) == ["supaclaw: one", "supaclaw: two"]


def test_a_defect_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(KeyError("x"), capsys) == ["supaclaw: KeyError: 'x' (a defect; SUPACLAW_DEBUG=1 shows where)"]


def test_an_interruption_needs_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(KeyboardInterrupt(), capsys) == []
    assert told(BrokenPipeError(), capsys) == []


def test_a_disk_that_takes_nothing_is_no_defect(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (errno.ENOSPC, errno.ENOENT, errno.EPERM):
        error = OSError(number, os.strerror(number), "/srv/data/keys")
        [line] = told(error, capsys)
        assert line == f"supaclaw: {os.strerror(number)}: /srv/data/keys; check it, or run `supaclaw doctor`"
