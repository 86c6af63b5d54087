"""Which IP addresses are public. The table is ours: the standard library's differs between its patch releases."""

from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address


class Reach(StrEnum):
    """Who may connect to an address."""

    PUBLIC = "public"
    PRIVATE = "private"
    """Where `net.private_allow` names it."""
    NEVER = "never"
    """Cloud metadata, link-local, multicast, tunnels, documentation: nothing that anybody should read."""


_METADATA = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"))
)


def _nets(text: str) -> tuple[IPv4Network, ...]:
    return tuple(map(IPv4Network, text.split()))


_PRIVATE4 = _nets("10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 172.16.0.0/12 192.168.0.0/16 198.18.0.0/15")
_NEVER4 = _nets(
    "0.0.0.0/8 169.254.0.0/16 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 "
    "192.175.48.0/24 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3"
)
_PRIVATE6 = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))
_GLOBAL6 = IPv6Network("2000::/3")
_NEVER6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")))
"""Teredo, ORCHID and benchmarking, documentation, 6to4, AS112, documentation."""
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def plain(text: str) -> IPv4Address | IPv6Address | None:
    """The address in this text, the IPv4 one of a mapped IPv6 one; None for a name, and for one with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return None if address.scope_id else address.ipv4_mapped or address
    return address


def reach(address: IPv4Address | IPv6Address) -> Reach:
    """How far it may be reached."""
    if address in _METADATA:
        return Reach.NEVER
    if isinstance(address, IPv4Address):
        return _reach(any(address in net for net in _PRIVATE4), all(address not in net for net in _NEVER4))
    if address in _NAT64:
        behind = reach(IPv4Address(address.packed[-4:]))
        return Reach.PUBLIC if behind is Reach.PUBLIC else Reach.NEVER
    if address.packed[8:12] in _ISATAP:
        return Reach.NEVER
    public = address in _GLOBAL6 and all(address not in net for net in _NEVER6)
    return _reach(any(address in net for net in _PRIVATE6), public)


def _reach(private: bool, public: bool) -> Reach:
    return Reach.PRIVATE if private else Reach.PUBLIC if public else Reach.NEVER
