"""The process that starts commands: small, so that a fork is cheap, and without anything of the gateway's."""

import os
import signal
import socket
import sys
from typing import NoReturn

from gateway.sandbox import namespaces, warden
from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Ending, Report, Tier, unpacked
from gateway.sandbox.kernel import DUMPABLE, set_control


def main(requests: socket.socket) -> None:
    """Start a command for each request, which brings its input, output, errors and a line to the gateway."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_control(DUMPABLE, 0)
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _start(unpacked(request), descriptors)
        for each in descriptors:
            os.close(each)


def _start(command: Command, descriptors: list[int]) -> NoReturn:
    control = socket.socket(fileno=descriptors[3])
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        set_control(DUMPABLE)
        if command.tier is Tier.NAMESPACES:
            namespaces.leave()
            if os.fork() != 0:
                os._exit(0)
        warden.watch(command, (descriptors[0], descriptors[1], descriptors[2]), control)
    except (OSError, ValueError) as error:
        control.send(Report(Ending.REFUSED, problem=f"the jail cannot be built: {error}").packed())
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
