"""Calls of declared operations, on behalf of one person."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from gateway.agent.commands import WorkspaceCommands
from gateway.agent.sources import AnyArguments, Offer
from gateway.agent.tool_files.confirmed import Confirmed, ToolFiles
from gateway.agent.tool_files.databases import DatabaseCall, function_of, origin
from gateway.agent.tool_files.scripts import ScriptCall
from gateway.agent.tool_files.tokens import AccessTokens
from gateway.domain.conversation.diff import written_out
from gateway.domain.conversation.operations import Operation
from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Change,
    Effect,
    Labelled,
    Tool,
    ToolClass,
    ToolFailed,
    Wording,
)
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.marks import data_from
from gateway.net import api
from gateway.net.addresses import parse_url
from gateway.net.api import ApiResponse
from gateway.net.errors import NetError
from gateway.net.mcp.server import visible_json
from gateway.secrets.facts import origin_of
from gateway.secrets.injection import Outgoing, SecretRefused, Usable, inject
from gateway.store.functions import FunctionFailed
from gateway.workspace.tool_files.declaration import FILE, Credential, Requests, Rpc, Script
from gateway.workspace.tool_files.tool_file import FOLDER, ToolFile


@dataclass(frozen=True, slots=True)
class _Call:
    files: ToolFiles
    tokens: AccessTokens
    confirmed: Confirmed
    operation: Operation
    principal: PrincipalId

    @property
    def tool(self) -> ToolFile:
        return self.confirmed.tool

    async def run(self, arguments: AnyArguments, _caller: Caller) -> Labelled:
        await self.files.check(self.confirmed)
        with self._explained():
            answer = await (self._rows(arguments) if self._database else self._answer(self._request(arguments)))
        return Labelled(_result(answer, str(urlsplit(self.tool.base).hostname)), Label.UNTRUSTED)

    async def kind(self, arguments: AnyArguments, _caller: Caller) -> ToolClass:
        return self.operation.kind_of(_given(arguments))

    async def lasting(self, arguments: AnyArguments, _caller: Caller) -> Change:
        """The request as it would leave, with the name of its credential; a yes is to this version of the file."""
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
            api.check_arguments(self.operation, _given(arguments))
            return f"{database.schema_name}.{function_of(self.operation)} of {self.tool.base}"
        request = self._request(arguments)
        return f"{request.method} {request.url}"

    async def _rows(self, arguments: AnyArguments) -> ApiResponse:
        config, given = self._database, _given(arguments)
        assert config is not None, "asked for where there is one"
        api.check_arguments(self.operation, given)
        files = await self.files.bytes_of(self.confirmed) if config.ca else {}
        call = DatabaseCall(self.tool, config, files, self._find, self.tokens.rules())
        injected = call.credential()
        await self.tokens.credentials.used(injected.used, self.principal, f"{self.tool.name} {self.tool.base}")
        return ApiResponse(200, "application/json", await call.run(self.operation, given, injected))

    def _request(self, arguments: AnyArguments) -> Outgoing:
        config = self.tool.config
        headers = config.headers if isinstance(config, Requests) else {}
        return api.build_request(self.operation, self.tool.base, _given(arguments), headers)

    async def _answer(self, request: Outgoing) -> ApiResponse:
        credential, rules = self.tool.credential, self.tokens.rules
        if credential is None:
            return await api.send(request, rules)
        if credential.oauth is None:
            reference = credential.text.format(f"${{secret:{credential.secret}}}")
            injected = inject(_with(request, credential, reference), self.tool.name, self._find)
            await self.tokens.credentials.used(injected.used, self.principal, f"{self.tool.name} {self.tool.base}")
            return await api.send(injected.request, rules)
        token = await self.tokens.get(self.tool, self.principal)
        answer = await api.send(_with(request, credential, credential.text.format(token)), rules)
        if answer.status == 401:
            token = await self.tokens.get(self.tool, self.principal, refused=token)
            answer = await api.send(_with(request, credential, credential.text.format(token)), rules)
        return answer

    def _find(self, name: str) -> Usable | None:
        return self.tokens.credentials.finder(self.principal)(name)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except NetError as error:
            raise ToolFailed(error.code, str(error)) from error
        except SecretRefused as error:
            raise ToolFailed("no_credential", f"{error} {advice(self.tool)}") from error
        except FunctionFailed as error:
            raise ToolFailed(error.error, str(error), Label.UNTRUSTED if error.foreign else Label.OWNER) from error


def advice(tool: ToolFile) -> str:
    """What the owner does so that a tool has its credential, to be told to them."""
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


def missing(tool: ToolFile, find: Callable[[str], Usable | None]) -> str:
    """The command that stores the credential that isn't there; "" if it is, or none is needed."""
    credential = tool.credential
    return _command(tool, credential) if credential and find(credential.secret) is None else ""


def _given(arguments: AnyArguments) -> Mapping[str, Json]:
    return dict(arguments.model_extra or {})


def _with(request: Outgoing, credential: Credential, value: str) -> Outgoing:
    return replace(request, headers={**request.headers, credential.header: value})


@dataclass
class DeclaredTools:
    """The operations of confirmed files, as tools of their owner; others have none."""

    principal: PrincipalId
    owner: bool
    files: ToolFiles
    tokens: AccessTokens
    commands: WorkspaceCommands | None = None
    """Of the owner, where the kernel can confine scripts."""
    more: bool = False

    @property
    def offers(self) -> Sequence[Offer]:
        """Each operation of each of them."""
        on = [each for each in self.files.on if each.tool.head.is_active] if self.owner else []
        calls = [
            _Call(self.files, self.tokens, each, one, self.principal) for each in on for one in each.tool.operations
        ]
        return [*(Offer(_tool(call)) for call in calls), *(Offer(each.tool()) for each in self._scripts(on))]

    def _scripts(self, on: Sequence[Confirmed]) -> Iterator[ScriptCall]:
        if self.commands is not None and self.commands.offered():
            for each in on:
                if isinstance(script := each.tool.config, Script):
                    yield ScriptCall(self.files, each, script, self.commands)

    async def refresh(self) -> None:
        """Nothing: whoever builds an environment has looked at the files."""

    async def discover(self) -> Sequence[str]:
        """There are no others."""
        return ()


def _tool(call: _Call) -> AnyTool:
    tool, operation = call.tool, call.operation
    name = f"{tool.name}_{operation.name}"
    docs = f" How to use it: {'/'.join(FOLDER)}/{tool.name}/{FILE}." if tool.body else ""
    return Tool(
        name,
        f"{tool.head.name}: {operation.description or tool.description}{docs}",
        AnyArguments,
        call.run,
        Effect.SAFE if operation.method in ("GET", "HEAD") else Effect.ONCE,
        timeout=90.0,
        max_result=12_000,
        kind=call.kind,
        lasting=call.lasting,
        private=True,
        wording=Wording(f"Calling {name}", f"Called {name}"),
        parameters=operation.schema,
    )


def _result(answer: ApiResponse, host: str) -> Mapping[str, Json]:
    note = data_from(host)
    failed: JsonObject = {}
    if answer.status >= 400:
        failed = {"error": f"http_{answer.status}", "message": f"{host} answered {answer.status}; body says why."}
    return {**failed, "status": answer.status, "note": note, "body": visible_json(_body(answer))}


def _body(answer: ApiResponse) -> Json:
    if answer.mime == "application/json" or answer.mime.endswith("+json"):
        try:
            body: Json = json.loads(answer.text)
        except (ValueError, RecursionError):
            return answer.text
        return body
    return answer.text
