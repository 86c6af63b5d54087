"""Signals of a command to its own processes, for kernels whose Landlock does not confine them."""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

from gateway.sandbox.kernel import release
from gateway.sandbox.supervised.processes import descendants, group_of, process_of
from gateway.sandbox.supervised.supervisor import Call, Handler, Harmless

_UNINTERRUPTED_SINCE = (5, 19)


def handlers() -> dict[str, Handler]:
    """For the calls that send them. To be used by what all these processes descend from."""
    return {"kill": _kill, "tkill": _kill_thread, "tgkill": _kill_thread}


def _kill(call: Call) -> Callable[[], None] | None:
    target, number = call.number(0), call.number(1)
    own = process_of(call.thread)
    call.check()
    if target == own:
        raise Harmless
    processes = [target] if target > 0 else list(_group(target, own))
    sent = [each for each in processes if each != own and _sent(each, number)]
    if target == -1 or own not in processes:
        if not sent:
            raise OSError(errno.EPERM if os.path.exists(f"/proc/{target}") else errno.ESRCH, "none of its processes")
        return None
    if release() < _UNINTERRUPTED_SINCE:  # a signal would begin the waiting call again
        return lambda: _send_late(own, number)
    _sent(own, number)
    return None


def _kill_thread(call: Call) -> None:
    """Of its own process, which waits and so keeps its number; threads of others are out of reach."""
    own = call.thread if call.name == "tkill" else process_of(call.thread)
    call.check()
    if call.number(0) == own:
        raise Harmless
    raise PermissionError(errno.EPERM, "another's thread")


def _group(target: int, own: int) -> Iterator[int]:
    """Those of a group, or all for -1."""
    group = group_of(own) if target == 0 else -target
    yield from (each for each in set(descendants(os.getpid())) if target == -1 or group_of(each) == group)


def _sent(process: int, number: int) -> bool:
    """Whether it is one of ours, and got it. A descriptor means one process, however its number is used later."""
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return False
    try:
        if process not in set(descendants(os.getpid())):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _send_late(process: int, number: int) -> None:
    with suppress(OSError):
        _sent(process, number)
