"""Where requests may go."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.people.private_places import PrivatePlace, private_place
from gateway.net.addresses import Reach, plain, reach
from gateway.net.errors import NetError
from gateway.net.urls import Target


@dataclass(frozen=True, slots=True)
class Rules:
    """Names cover their subdomains; `private` are the places of private networks that may be reached."""

    private: tuple[PrivatePlace, ...] = ()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, private: Sequence[str], allow: Sequence[str] = (), deny: Sequence[str] = ()) -> "Rules":
        """As the configuration has them."""
        return cls(tuple(map(private_place, private)), tuple(map(_plain, allow)), tuple(map(_plain, deny)))

    def admit(self, target: Target) -> None:
        """Raise `NetError` if nothing may be asked of this host, before its name is looked up."""
        self.admit_host(target.host)
        address = plain(target.host)
        listed = (place.port for place in self.private if place.covers(target.host, address, target.port))
        if target.odd_port and not any(listed):
            raise _refused(f"port {target.port} isn't a usual web port")
        if target.local and not self.private:
            raise _refused(_only(f"{target.host} is a name in a private network", target.host, target.port))
        if address is not None:
            self.check(target.host, target.port, target.host)

    def admit_host(self, host: str) -> None:
        """Raise `NetError` if the owner's lists keep this one away."""
        if _covers(self.deny, host):
            raise _refused(f"{host} is in tools.web.deny_hosts")
        if self.allow and not _covers(self.allow, host):
            raise _refused(f"{host} is not in tools.web.allow_hosts")

    def check(self, host: str, port: int, address: str) -> None:
        """Raise `NetError` if no connection may be made to this address of the host."""
        found = plain(address)
        kind = reach(found) if found else Reach.NEVER
        if kind is Reach.PRIVATE and any(place.covers(host, found, port) for place in self.private):
            return
        if kind is Reach.PRIVATE:
            raise _refused(_only(f"{host} is in a private network", host, port))
        if kind is Reach.NEVER:
            raise _refused(f"{host} has an address that is always blocked")


def _plain(host: str) -> str:
    return host.lower().removeprefix("*.").strip(".")


def _covers(names: Sequence[str], host: str) -> bool:
    return any(host == name or host.endswith(f".{name}") for name in names)


def _only(fact: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f'{fact}; only its owner can allow it, with "{shown}:{port}" in net.private_allow'


def _refused(reason: str) -> NetError:
    return NetError("not_allowed", f"Not connected: {reason}.")
