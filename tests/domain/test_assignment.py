import pytest

from gateway.domain.work.tasks import QUIET, is_quiet


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
        "nothing-to-report",
        "NOTHING_TO_REPORT",
    ],
)
def test_the_word_is_quiet_however_it_is_set(text: str) -> None:
    assert is_quiet(text, QUIET)


@pytest.mark.parametrize(
    "text",
    ["", "…", "nothing", "Nothing to report, but the disk is full.", "There is nothing to report"],
)
def test_anything_else_is_not(text: str) -> None:
    assert not is_quiet(text, QUIET)


def test_another_word_may_be_agreed() -> None:
    assert is_quiet("HEARTBEAT OK.", "heartbeat ok")
    assert not is_quiet("nothing to report", "heartbeat ok")


def test_a_long_text_is_no_work() -> None:
    """A search for what stands around the word may not begin anew at each letter of a table or a line."""
    assert not is_quiet("-" * 1_000_000 + "|", QUIET)
    assert not is_quiet(f"a{'-' * 1_000_000}b", QUIET)
    assert not is_quiet(f"nothing to report {'-' * 1_000_000} b", QUIET)
