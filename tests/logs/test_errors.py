import pytest
import structlog
from structlog.testing import capture_logs

from gateway.logs.errors import logged

log = structlog.get_logger()


def fail(error: Exception) -> None:
    raise error


def test_an_error_of_the_kind_is_logged_by_its_text_and_ends_nothing() -> None:
    with capture_logs() as lines, logged(log, "file.lost", OSError, path="a.md"):
        fail(FileNotFoundError("gone"))
    assert lines == [{"event": "file.lost", "error": "gone", "path": "a.md", "log_level": "warning"}]


def test_any_other_error_is_raised() -> None:
    with capture_logs() as lines, pytest.raises(KeyError), logged(log, "file.lost", OSError):
        fail(KeyError("other"))
    assert lines == []


def test_without_kinds_any_error_is_logged_with_its_traceback() -> None:
    with capture_logs() as lines, logged(log, "worker.broken"), logged(log, "worker.waits", OSError):
        fail(KeyError("other"))
    assert [(line["event"], line["exc_info"]) for line in lines] == [("worker.broken", True)]
