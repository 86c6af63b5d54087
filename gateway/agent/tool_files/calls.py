"""Calls of the operations of tool files for one person: over HTTP, or of Postgres functions over its own protocol.

OAuth access tokens stay in memory.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.agent.mcp.servers import Credentials
from gateway.agent.tool_files.confirmed import ConfirmedTool, ToolFiles
from gateway.agent.tool_files.scripts import MAX_RESULT, ScriptCall, described
from gateway.agent.tool_sources import AnyArguments, Offer, ToolSource
from gateway.domain.conversation.diff import written_out
from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Change,
    Effect,
    Labelled,
    Operation,
    Tool,
    ToolClass,
    ToolFailed,
    Wording,
)
from gateway.domain.errors import raising
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json, JsonObject, json_or_text
from gateway.domain.principals import Label
from gateway.domain.text.marks import data_from
from gateway.domain.time import Clock
from gateway.net import api
from gateway.net.addresses import Reach, Rules, checked_addresses, parse_ip, parse_url, reach
from gateway.net.api import AccessToken, ApiResponse
from gateway.net.errors import NetError
from gateway.net.mcp.server import visible_json
from gateway.secrets.facts import origin_of
from gateway.secrets.injection import Injected, Outgoing, SecretRefused, Usable, inject
from gateway.store.connection.foreign_database import ForeignDatabase, NamedContext, call_function
from gateway.workspace.skills.folder import Files
from gateway.workspace.tool_files.declaration import PASSWORD, Credential, OAuth, Requests, Rpc, Script
from gateway.workspace.tool_files.tool_file import ToolFile

PORT = 5432

EARLY_SECONDS = 60.0
"""An access token is replaced this long before it expires, or at half of its lifetime if that is later."""


def _login(tool: ToolFile, find: Callable[[str], Usable | None]) -> Injected:
    """The credential of the connection to a tool's database; raises `SecretRefused`."""
    named = tool.credential
    fields = {PASSWORD: f"${{secret:{named.secret}}}"} if named else {}
    return inject(Outgoing("CONNECT", origin(tool), fields=fields), tool.name, find)


async def _reached(tool: ToolFile, config: Rpc, files: Files, rules: Rules, secret: str) -> ForeignDatabase:
    """Where a tool's database can be reached; `files` are the confirmed ones. Raises `NetError`, `SecretRefused`."""
    parts = urlsplit(tool.base)
    shown, port = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname, parts.port or PORT
    host = parse_url(f"https://{shown}").host
    rules.admit_host(host)
    addresses = await checked_addresses(host, port, rules)
    private = all((found := parse_ip(each)) is not None and reach(found) is Reach.PRIVATE for each in addresses)
    if config.tls == "off" and not private:
        raise NetError("not_allowed", f"Not connected: {host} isn't in your own network, so it needs tls.")
    tls = None if config.tls == "off" else _context(host, config.ca, files)
    user, name = unquote(parts.username or ""), parts.path.strip("/")
    return ForeignDatabase(host, port, addresses, user, name, _password(secret, tool), tls)


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
        message = f"{authority} beside TOOL.md is not a certificate in PEM form."
        with raising(NetError("bad_certificate", message), KeyError, ValueError, OSError):
            context.load_verify_locations(cadata=files[authority].decode())
    return context


@dataclass
class AccessTokens:
    """Access tokens, one for each person and tool."""

    credentials: Credentials
    rules: Callable[[], Rules]
    clock: Clock
    _held: dict[tuple[PrincipalId, str], AccessToken] = field(default_factory=dict, init=False)
    _unsaved: dict[tuple[PrincipalId, str], str] = field(default_factory=dict, init=False, repr=False)
    """New refresh tokens, until they are stored in the database."""
    _locks: defaultdict[tuple[PrincipalId, str], asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock), init=False
    )

    async def get(
        self, tool: ToolFile, credential: Credential, grant: OAuth, principal: PrincipalId, refused: str = ""
    ) -> str:
        """An access token other than the `refused` one; raises `NetError` and `SecretRefused`."""
        key = principal, f"{tool.name} {tool.base} {credential}"
        async with self._locks[key]:
            held = self._held.get(key)
            if held is None or held.token == refused or held.until <= self.clock.monotonic():
                held = self._held[key] = await self._renewed(tool.name, credential, grant, principal)
            return held.token

    async def _renewed(self, tool: str, credential: Credential, grant: OAuth, principal: PrincipalId) -> AccessToken:
        await self._save(credential.secret, principal)
        injected = inject(_request(credential.secret, grant), tool, self.credentials.finder(principal))
        await self.credentials.used(injected.used, principal, f"{tool} {grant.token_url}")
        tokens = await api.exchange_refresh_token(injected.request, self.rules)
        self.credentials.hide(credential.secret, principal, tokens.access_token)
        if tokens.refresh_token and tokens.refresh_token != injected.request.fields["refresh_token"]:
            self._unsaved[principal, credential.secret] = tokens.refresh_token
            await self._save(credential.secret, principal)
        lasts = max(tokens.expires_in - EARLY_SECONDS, tokens.expires_in / 2)
        return AccessToken(tokens.access_token, self.clock.monotonic() + lasts)

    async def _save(self, name: str, principal: PrincipalId) -> None:
        """Store a new refresh token: the endpoint accepts no other one now."""
        if value := self._unsaved.get((principal, name)):
            await self.credentials.renewed(name, value, principal)
            del self._unsaved[principal, name]


def _request(secret: str, grant: OAuth) -> Outgoing:
    others = {"client_secret": f"${{secret:{grant.client_secret_name}}}"} if grant.client_secret_name else {}
    scope = {"scope": grant.scope} if grant.scope else {}
    fields = {"grant_type": "refresh_token", "refresh_token": f"${{secret:{secret}}}", "client_id": grant.client_id}
    return Outgoing("POST", grant.token_url, {"Accept": "application/json"}, {**fields, **others, **scope})


@dataclass(frozen=True, slots=True)
class _Call:
    files: ToolFiles
    tokens: AccessTokens
    confirmed: ConfirmedTool
    operation: Operation
    principal: PrincipalId

    @property
    def tool(self) -> ToolFile:
        return self.confirmed.tool

    async def run(self, arguments: AnyArguments, _caller: Caller) -> Labelled:
        await self.files.check(self.confirmed)
        with self._explained():
            database = self._database
            answer = await (self._rows(database, arguments) if database else self._answer(self._request(arguments)))
        return Labelled(_result(answer, str(urlsplit(self.tool.base).hostname)), Label.UNTRUSTED)

    async def kind(self, arguments: AnyArguments, _caller: Caller) -> ToolClass:
        return self.operation.kind_of(_given(arguments))

    async def lasting(self, arguments: AnyArguments, _caller: Caller) -> Change:
        """The request with the name of its credential; an approval covers this version of the file."""
        await self.files.check(self.confirmed)
        with self._explained():
            shown, credential = self._shown(arguments), self.tool.credential
            if credential and self._find(credential.secret) is None:
                raise SecretRefused(f"There is no secret {credential.secret}.")
        where = credential and f"the {'field' if credential.field else 'header'} {credential.header}"
        sent = f"\nwith the credential {credential.secret} in {where}" if credential else ""
        return Change(f"{written_out(shown, _given(arguments))}{sent}", self.confirmed.sha256)

    @property
    def _database(self) -> Rpc | None:
        config = self.tool.config
        return config if isinstance(config, Rpc) and config.database is not None else None

    def _shown(self, arguments: AnyArguments) -> str:
        if database := self._database:
            api.check_arguments(self.operation.slots, self.operation.required, _given(arguments))
            return f"{database.schema_name}.{function_of(self.operation)} of {self.tool.base}"
        request = self._request(arguments)
        return f"{request.method} {request.url}"

    async def _rows(self, config: Rpc, arguments: AnyArguments) -> ApiResponse:
        operation, given = self.operation, _given(arguments)
        api.check_arguments(operation.slots, operation.required, given)
        files = await self.files.bytes_of(self.confirmed) if config.ca else {}
        injected = _login(self.tool, self._find)
        await self._note_use(injected)
        secret = injected.request.fields.get(PASSWORD, "")
        database = await _reached(self.tool, config, files, self.tokens.rules(), secret)
        named = {operation.slots[name].name: value for name, value in given.items()}
        reads = operation.kind is ToolClass.NET
        rows = await call_function(database, config.schema_name, function_of(operation), named, reads=reads)
        return ApiResponse(200, "application/json", rows)

    def _request(self, arguments: AnyArguments) -> Outgoing:
        config = self.tool.config
        headers = config.headers if isinstance(config, Requests) else {}
        return api.build_request(self.operation, self.tool.base, _given(arguments), headers)

    async def _answer(self, request: Outgoing) -> ApiResponse:
        credential, rules = self.tool.credential, self.tokens.rules
        if credential is None:
            return await api.send(request, rules)
        if (grant := credential.oauth) is None:
            placed = _with(request, credential, f"${{secret:{credential.secret}}}")
            injected = inject(placed, self.tool.name, self._find)
            await self._note_use(injected)
            return await api.send(injected.request, rules)
        token = await self.tokens.get(self.tool, credential, grant, self.principal)
        answer = await api.send(_with(request, credential, token), rules)
        if answer.status == 401:
            token = await self.tokens.get(self.tool, credential, grant, self.principal, refused=token)
            answer = await api.send(_with(request, credential, token), rules)
        return answer

    async def _note_use(self, injected: Injected) -> None:
        await self.tokens.credentials.used(injected.used, self.principal, f"{self.tool.name} {self.tool.base}")

    def _find(self, name: str) -> Usable | None:
        return self.tokens.credentials.finder(self.principal)(name)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SecretRefused as error:
            raise ToolFailed.own("no_credential", f"{error} {credential_advice(self.tool)}") from error


def credential_advice(tool: ToolFile) -> str:
    """The advice to store the credential of a tool; "" if it needs none."""
    credential = tool.credential
    if credential is None:
        return ""
    about = f" ({credential.about})" if credential.about else ""
    return f"Its owner stores the credential{about} with: {_command(tool, credential)}"


def _command(tool: ToolFile, credential: Credential) -> str:
    url = credential.oauth.token_url if credential.oauth else tool.base
    place = "--field refresh_token" if credential.oauth else f"--{credential.place.replace(':', ' ')}"
    host = origin(tool) if credential.field else origin_of(parse_url(url).origin)
    return f"supaclaw secrets set {credential.secret} --host {host} --tool {tool.name} {place}"


def missing_credential(tool: ToolFile, find: Callable[[str], Usable | None]) -> str:
    """The command that stores a missing credential; "" if none is missing."""
    credential = tool.credential
    return _command(tool, credential) if credential and find(credential.secret) is None else ""


def _given(arguments: AnyArguments) -> Mapping[str, Json]:
    return dict(arguments.model_extra or {})


def _with(request: Outgoing, credential: Credential, value: str) -> Outgoing:
    return replace(request, headers={**request.headers, credential.header: credential.text.format(value)})


@dataclass
class DeclaredTools(ToolSource):
    """The operations and scripts of tool files, as tools of the owner; other people have none.

    The files are read when an environment is built.
    """

    principal: PrincipalId
    owner: bool
    files: ToolFiles
    tokens: AccessTokens
    commands: WorkspaceCommands | None = None
    """The owner's commands, if the kernel can confine scripts."""

    @property
    def offers(self) -> Sequence[Offer]:
        """A tool for each operation and each script."""
        on = [each for each in self.files.on if each.tool.head.is_active] if self.owner else []
        calls = [
            _Call(self.files, self.tokens, each, one, self.principal) for each in on for one in each.tool.operations
        ]
        tools = [*map(_tool, calls), *(each.tool() for each in self._scripts(on))]
        return [Offer(tool, Label.OWNER) for tool in tools]

    def _scripts(self, on: Sequence[ConfirmedTool]) -> Iterator[ScriptCall]:
        if self.commands is not None and self.commands.offered():
            for each in on:
                if isinstance(script := each.tool.config, Script):
                    yield ScriptCall(self.files, each, script, self.commands)


def _tool(call: _Call) -> AnyTool:
    operation, config = call.operation, call.tool.config
    assert isinstance(config, Requests), "only those have operations"
    return Tool(
        name := f"{call.tool.name}_{operation.name}",
        described(call.tool, operation.description),
        AnyArguments,
        call.run,
        Effect.SAFE if operation.method in ("GET", "HEAD") else Effect.ONCE,
        timeout=90.0,
        max_result=MAX_RESULT,
        kind=call.kind,
        lasting=call.lasting,
        private=True,
        wording=Wording(f"Calling {name}", f"Called {name}"),
        parameters=operation.schema,
        roles=config.roles.get(operation.name, {}),
        server=f"{call.tool.name} {call.confirmed.sha256}",
        own_rows=config.own.get(operation.name, ""),
    )


def _result(answer: ApiResponse, host: str) -> Mapping[str, Json]:
    failed: JsonObject = {}
    if answer.status >= 400:
        failed = {"error": f"http_{answer.status}", "message": f"{host} answered {answer.status}; body says why."}
    is_json = answer.mime == "application/json" or answer.mime.endswith("+json")
    body = json_or_text(answer.text) if is_json else answer.text
    return {**failed, "status": answer.status, "note": data_from(host), "body": visible_json(body)}
