"""Names, looked up and checked when the connection is made."""

import asyncio
import socket

from gateway.net.errors import NetError
from gateway.net.rules import Rules


async def checked_addresses(host: str, port: int, rules: Rules) -> list[str]:
    """The addresses of a host, to which it may be connected; raises `NetError`.

    One address that cannot be used refuses the whole name: it is not ours to guess which of them is meant.
    """
    addresses = await look_up(host, port)
    for address in addresses:
        rules.check(host, port, address)
    return addresses


async def look_up(host: str, port: int) -> list[str]:
    """All addresses of a name; raises `NetError`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NetError("unknown_host", f"{host} was not found; check the spelling of the address.") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))
