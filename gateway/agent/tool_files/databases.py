"""Calls of Postgres functions that a tool file lists, over Postgres' own protocol."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from gateway.domain.conversation.tools import Operation, ToolClass
from gateway.domain.json import Json
from gateway.net.addresses import Reach, Rules, checked_addresses, parse_ip, parse_url, reach
from gateway.net.errors import NetError
from gateway.secrets.facts import origin_of
from gateway.secrets.injection import Injected, Outgoing, SecretRefused, Usable, inject
from gateway.store.connection.foreign_database import ForeignDatabase, NamedContext, call_function
from gateway.workspace.skills.folder import Files
from gateway.workspace.tool_files.declaration import PASSWORD, Rpc
from gateway.workspace.tool_files.tool_file import ToolFile

PORT = 5432


@dataclass(frozen=True, slots=True)
class DatabaseCall:
    """A call for one person; `find` finds their secrets, and `files` are the confirmed ones."""

    tool: ToolFile
    config: Rpc
    files: Files
    find: Callable[[str], Usable | None]
    rules: Rules

    def credential(self) -> Injected:
        """The credential of the connection; raises `SecretRefused`."""
        named = self.tool.credential
        fields = {PASSWORD: f"${{secret:{named.secret}}}"} if named else {}
        return inject(Outgoing("CONNECT", origin(self.tool), fields=fields), self.tool.name, self.find)

    async def run(self, operation: Operation, arguments: Mapping[str, Json], injected: Injected) -> str:
        """Call a function and return its rows as JSON; raises `NetError`, `SecretRefused` and `FunctionFailed`."""
        database = await self._database(injected.request.fields.get(PASSWORD, ""))
        given = {operation.slots[name].name: value for name, value in arguments.items()}
        reads = operation.kind is ToolClass.NET
        return await call_function(database, self.config.schema_name, function_of(operation), given, reads=reads)

    async def _database(self, secret: str) -> ForeignDatabase:
        parts = urlsplit(self.tool.base)
        shown, port = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname, parts.port or PORT
        host = parse_url(f"https://{shown}").host
        self.rules.admit_host(host)
        addresses = await checked_addresses(host, port, self.rules)
        private = all((found := parse_ip(each)) is not None and reach(found) is Reach.PRIVATE for each in addresses)
        if self.config.tls == "off" and not private:
            raise NetError("not_allowed", f"Not connected: {host} isn't in your own network, so it needs tls.")
        tls = None if self.config.tls == "off" else _context(host, self.config.ca, self.files)
        user, name = unquote(parts.username or ""), parts.path.strip("/")
        return ForeignDatabase(host, port, addresses, user, name, _password(secret, self.tool), tls)


def origin(tool: ToolFile) -> str:
    """The origin that the secret is bound to."""
    return origin_of(f"postgresql://{urlsplit(tool.base).netloc.rpartition('@')[2]}")


def function_of(operation: Operation) -> str:
    """The name of the function in the database."""
    return operation.path.rpartition("/")[2]


def _password(secret: str, tool: ToolFile) -> str:
    """The password; one in a connection string must be for the same database and user."""
    if not secret.startswith(("postgresql://", "postgres://")):
        return secret
    ours, parts = urlsplit(tool.base), urlsplit(secret)
    same = (parts.hostname, parts.port or PORT, unquote(parts.username or ""), parts.path.strip("/"))
    if same != (ours.hostname, ours.port or PORT, ours.username, ours.path.strip("/")):
        raise SecretRefused("The secret is a connection string of another database or user than config.database.")
    return unquote(parts.password or "")


def _context(host: str, authority: str | None, files: Files) -> NamedContext:
    from ssl import PROTOCOL_TLS_CLIENT

    import certifi

    context = NamedContext(PROTOCOL_TLS_CLIENT)
    context.name = host
    if authority is None:
        context.load_default_certs()
        context.load_verify_locations(certifi.where())
    else:
        try:
            context.load_verify_locations(cadata=files[authority].decode())
        except (KeyError, ValueError, OSError) as error:
            message = f"{authority} beside TOOL.md is not a certificate in PEM form."
            raise NetError("bad_certificate", message) from error
    return context
