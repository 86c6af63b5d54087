"""What a database address tells: where to connect, and whether a transaction pooler stands in between."""

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from gateway.domain.errors import OwnerMustAct

_HINTS = {"pgbouncer", "pool_mode", "member_password"}
_OF_OTHER_CLIENTS = """
    application_name channel_binding client_encoding connect_timeout fallback_application_name gssencmode
    keepalives keepalives_count keepalives_idle keepalives_interval load_balance_hosts max_protocol_version
    min_protocol_version require_auth requirepeer sslcompression sslsni tcp_user_timeout
    connection_limit max_idle_connection_lifetime pool_timeout schema single_use_connections socket_timeout
    sslaccept sslidentity statement_cache_size supa uselibpqcompat workaround
"""
"""Options of libpq, Prisma and node-postgres in addresses that hosts offer to copy. We set our own limits, schema and
encoding; anything else that we do not know goes to the server as a setting."""

UNREADABLE = "The database URL cannot be read; write postgresql://user:password@host:5432/name"
_NOT_ENCODED = "The database URL is ambiguous: within a password write @ as %40, / as %2F, ? as %3F, # as %23"


@dataclass(frozen=True, slots=True)
class Dsn:
    """An address as asyncpg takes it. Not `direct` means: no session state, no prepared statements, no LISTEN."""

    url: str = field(repr=False)
    direct: bool
    member_password: str | None = field(default=None, repr=False)


def parse_dsn(text: str) -> Dsn:
    """Read an address; `?pool_mode=session|transaction` overrules the guess from port 6543 or a host named pooler."""
    try:
        parts = urlsplit(text.strip())
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise OwnerMustAct(UNREADABLE) from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise OwnerMustAct("The database URL must start with postgresql://")
    if parts.netloc.count("@") > 1 or "@" in parts.path + parts.query + parts.fragment:
        raise OwnerMustAct(_NOT_ENCODED)
    dropped = _HINTS.union(_OF_OTHER_CLIENTS.split())
    kept = urlencode([(name, value) for name, value in options if value and name not in dropped])
    url = text.strip().partition("?")[0].partition("#")[0] + (f"?{kept}" if kept else "")
    return Dsn(url, not _pooled(parts, dict(options)), dict(options).get("member_password") or None)


def as_user(dsn: Dsn, name: str, password: str) -> Dsn:
    """The same database for another role; poolers that serve many projects name one behind a dot in the user."""
    parts = urlsplit(dsn.url)
    options = dict(parse_qsl(parts.query))
    login, _, hosts = parts.netloc.rpartition("@")
    _, dot, project = (options.get("user") or login.partition(":")[0]).partition(".")
    kept = urlencode({name: value for name, value in options.items() if name not in {"user", "password"}})
    netloc = f"{name}{dot}{project}:{quote(password, safe='')}@{hosts}"
    return Dsn(parts._replace(netloc=netloc, query=kept).geturl(), dsn.direct)


def _pooled(parts: SplitResult, options: dict[str, str]) -> bool:
    if (mode := options.get("pool_mode")) is not None:
        return mode == "transaction"
    if (flag := options.get("pgbouncer")) is not None:
        return flag == "true"
    hosts = [*parts.netloc.rpartition("@")[2].split(","), options.get("host", "")]
    ports = [*(host.rpartition(":")[2] for host in hosts), options.get("port")]
    return "6543" in ports or any("pooler" in host or "pgbouncer" in host for host in hosts)
