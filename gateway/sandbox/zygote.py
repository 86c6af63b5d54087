"""The process that starts commands: small, so that a fork is cheap, and without anything of the gateway's."""

import gc
import os
import shutil
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from gateway.sandbox import namespaces, warden
from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Ending, Report, Tier, unpacked
from gateway.sandbox.kernel import DUMPABLE, set_control


def main(requests: socket.socket, *, watched: bool) -> None:
    """Start a command for each request, with its input, output, errors and a line to the gateway, until the end.

    `watched`: until a command has killed what watches over it.
    """
    signal.signal(signal.SIGCHLD, _reaped if watched else signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_control(DUMPABLE, 0)
    gc.disable()  # a collection in a child would copy all that it shares with this process
    gc.freeze()
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _start(unpacked(request), descriptors)
        for each in descriptors:
            os.close(each)


def _reaped(_signal: int, _frame: FrameType | None) -> None:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if os.WIFSIGNALED(found[1]):
                os._exit(1)


def _start(command: Command, descriptors: list[int]) -> NoReturn:
    control = socket.socket(fileno=descriptors[3])
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        set_control(DUMPABLE)
        if command.tier is Tier.NAMESPACES:
            namespaces.leave()
            if init := os.fork():
                _clean_up(init, command, control, descriptors)
                os._exit(0)
        warden.watch(command, (descriptors[0], descriptors[1], descriptors[2]), control)
    except (OSError, ValueError) as error:
        control.send(Report(Ending.REFUSED, problem=f"the jail cannot be built: {error}").packed())
    finally:
        os._exit(1)


def _clean_up(init: int, command: Command, control: socket.socket, descriptors: list[int]) -> None:
    """What lies outside the command's root it can't delete itself."""
    if command.temporary:
        control.close()
        for each in descriptors[:3]:
            os.close(each)
        os.waitpid(init, 0)
        shutil.rmtree(command.temporary, ignore_errors=True)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), watched="watched" in sys.argv[2:])
