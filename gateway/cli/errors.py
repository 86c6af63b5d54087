"""How a command reports an error."""

import errno
from traceback import format_exception
from types import TracebackType

from gateway.cli.console import echo
from gateway.domain.errors import SupaclawError, leaves

_IN_THE_WAY = frozenset(
    {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EEXIST, errno.ENOTDIR, errno.ELOOP}
)


def explain(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """Print the error to stderr for people: what is wrong and what to do, without a traceback."""
    for leaf in leaves(error):
        match leaf:
            case SupaclawError():
                _say(str(leaf))
            case KeyboardInterrupt() | BrokenPipeError():
                continue
            case OSError() if leaf.errno in _IN_THE_WAY:
                where = f": {leaf.filename}" if leaf.filename else ""
                _say(f"{leaf.strerror}{where}; `supaclaw doctor` shows what is in the way")
            case _:
                _say(f"{type(leaf).__name__}: {leaf} (a defect; SUPACLAW_DEBUG=1 shows where)")


def trace(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """Print the error to stderr with its traceback."""
    echo("".join(format_exception(error)), end="", error=True)


def _say(text: str) -> None:
    for line in text.splitlines():
        echo(f"supaclaw: {line}", error=True)
