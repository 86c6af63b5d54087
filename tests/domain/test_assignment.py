import pytest

from gateway.domain.assignment import QUIET, is_quiet


@pytest.mark.parametrize(
    "text",
    [
        "nothing to report",
        "Nothing to report.",
        '"Nothing to report"',
        "**nothing to report**\n",
        "`NOTHING  TO\nREPORT`!",
        "_nothing to report_ …",
        "> nothing to report",
    ],
)
def test_the_word_is_quiet_however_it_is_set(text: str) -> None:
    assert is_quiet(text, QUIET)


@pytest.mark.parametrize(
    "text",
    ["", "…", "nothing", "Nothing to report, but the disk is full.", "There is nothing to report", "nothing-to-report"],
)
def test_anything_else_is_not(text: str) -> None:
    assert not is_quiet(text, QUIET)


def test_another_word_may_be_agreed() -> None:
    assert is_quiet("HEARTBEAT OK.", "heartbeat ok")
    assert not is_quiet("nothing to report", "heartbeat ok")
