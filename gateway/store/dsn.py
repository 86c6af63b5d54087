"""What a database address tells: where to connect, and whether a transaction pooler stands in between."""

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from gateway.domain.errors import OwnerMustAct

_HINTS = {"pgbouncer", "pool_mode"}


@dataclass(frozen=True, slots=True)
class Dsn:
    """An address as asyncpg takes it. Not `direct` means: no session state, no prepared statements, no LISTEN."""

    url: str = field(repr=False)
    direct: bool


def parse_dsn(text: str) -> Dsn:
    """Read an address; `?pool_mode=session|transaction` overrules the guess from port 6543 or a host named pooler."""
    try:
        parts = urlsplit(text)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise OwnerMustAct("The database URL cannot be read; write postgresql://user:password@host/name") from error
    if parts.scheme not in {"postgresql", "postgres"}:
        raise OwnerMustAct("The database URL must start with postgresql://")
    kept = urlencode([(name, value) for name, value in options if name not in _HINTS])
    url = text.partition("?")[0] + (f"?{kept}" if kept else "")
    return Dsn(url, direct=not _pooled(parts, dict(options)))


def _pooled(parts: SplitResult, options: dict[str, str]) -> bool:
    if (mode := options.get("pool_mode")) is not None:
        return mode == "transaction"
    if (flag := options.get("pgbouncer")) is not None:
        return flag == "true"
    hosts = [*parts.netloc.rpartition("@")[2].split(","), options.get("host", "")]
    ports = [*(host.rpartition(":")[2] for host in hosts), options.get("port")]
    return "6543" in ports or any("pooler" in host or "pgbouncer" in host for host in hosts)
