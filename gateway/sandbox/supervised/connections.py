"""Connections to the gateway's proxy alone, for a command that has no network of its own."""

import errno
import fcntl
import os
import socket
import struct

from gateway.sandbox.supervised.supervisor import Call, Handler

_PUT_DESCRIPTOR, _AT_NUMBER = 0x40182103, 1
_SECONDS = 1.0
"""Who connects too often must not make us wait."""
_BUFFER_BYTES = 64 * 1024
"""Of a socket: memory that no process shows."""


def handlers(address: tuple[str, int]) -> dict[str, Handler]:
    """For the call that connects: it gets a socket that is connected to this address, in the place of its own."""
    host, port = address
    named = struct.pack("@H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host)

    def connect(call: Call) -> None:
        if call.memory(1, len(named)) != named:
            raise PermissionError(errno.EACCES, "another address")
        flags = _flags(call)
        with socket.socket() as own:
            for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                own.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
            own.settimeout(_SECONDS)
            try:
                own.connect(address)
            except TimeoutError as error:
                raise OSError(errno.ETIMEDOUT, "connect") from error
            own.setblocking(not flags & os.O_NONBLOCK)
            put = (call.ident, _AT_NUMBER, own.fileno(), call.number(0), flags & os.O_CLOEXEC)
            fcntl.ioctl(call.listener, _PUT_DESCRIPTOR, struct.pack("=QIIiI", *put))

    return {"connect": connect}


def _flags(call: Call) -> int:
    """Of the socket that the call names; raises `OSError` if it is something else."""
    place = f"/proc/{call.thread}/fd/{call.number(0)}"
    if not os.readlink(place).startswith("socket:"):
        raise OSError(errno.ENOTSOCK, "not a socket")
    with open(place.replace("/fd/", "/fdinfo/")) as file:
        flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
    call.check()
    return flags
