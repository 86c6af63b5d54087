"""A tool as its files declare it: what can be called, at which address, with which credential."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from gateway.domain.conversation.tools import Operation, ToolClass, taken_name
from gateway.domain.errors import raising
from gateway.domain.json import JsonObject
from gateway.domain.text.texts import one_line
from gateway.workspace.skills.folder import Files
from gateway.workspace.skills.parsing import MAX_DESCRIPTION, BadSkill, Skill, is_name
from gateway.workspace.tool_files import openapi
from gateway.workspace.tool_files.declaration import (
    FILE,
    RESERVED,
    Address,
    Api,
    ApiEndpoint,
    Credential,
    Function,
    Head,
    Parameter,
    Rpc,
    Script,
    Section,
    Server,
    credential_of,
    parse,
)
from gateway.workspace.tool_files.openapi import Offered, OperationLimits, Raw

FOLDER = (".agents", "tools")
DOCUMENT = "openapi.json"
"""Where a document that was fetched is kept: what is confirmed is what was fetched, whatever the address says later."""
LONGEST_NAME = 64
_CLASSES = {"read": ToolClass.NET, "send": ToolClass.SEND, "irreversible": ToolClass.IRREVERSIBLE}
_IN_BODY = ("POST", "PUT", "PATCH")


@dataclass(frozen=True, slots=True)
class ToolFile(Skill):
    """A tool; `name` is its slug. `base` is the address that paths of operations follow."""

    head: Head
    config: Section
    credential: Credential | None
    base: str
    operations: tuple[Operation, ...]
    left_out: tuple[str, ...]

    def summary(self) -> Sequence[str]:
        """Lines that name its address, its credential and its operations."""
        lines = [f"type {self.head.type} {self.base}".strip()]
        if credential := self.credential:
            to = f" after {credential.oauth.token_url}" if credential.oauth else ""
            lines.append(f"credential {credential.secret} in {credential.place}{to}")
        if isinstance(self.config, Script):
            network = f"reaches {', '.join(self.config.hosts)}" if self.config.hosts else "without network"
            lines.append(f"{self.name}_run: {self.config.command} (run in the jail, {network})")
        lines += [f"{self.name}_{each.name}: {each.method} {each.path} ({_class(each)})" for each in self.operations]
        return [*lines, *(f"left out: {each}" for each in self.left_out)]


def tool_file_of(files: Files) -> ToolFile:
    """Raises `BadSkill`, in one line."""
    head, config, body = _parsed(files)
    slug = head.slug or head.name
    if not is_name(slug) or slug == "mcp":
        raise BadSkill(f"Its {FILE}: slug has to be a-z, 0-9 and single hyphens, at most 32 characters, and not mcp.")
    credential = credential_of(head, config)
    base, found = _found(config, files, LONGEST_NAME - 1 - len(slug), credential)
    description, version = one_line(head.description, MAX_DESCRIPTION), one_line(head.version, 40)
    names = [*(each.name for each in found.operations), *(["run"] if isinstance(config, Script) else ())]
    for full in (f"{slug}_{name}" for name in names):
        if (own := taken_name(full)) or full.startswith("mcp-"):
            raise BadSkill(f"Its tool {full} could pass for {own or 'one of an MCP server'}; choose another slug.")
    _check_roles(config, {each.name: each.slots for each in found.operations})
    about = (("name", one_line(head.name, 64)), ("type", head.type), ("address", base))
    rest = (head, config, credential, base, found.operations, found.left_out)
    return ToolFile(slug, description, version, about, body, *rest)


def _check_roles(config: Section, known: Mapping[str, Collection[str]]) -> None:
    if isinstance(config, Api | Rpc):
        if unknown := sorted((config.roles.keys() | config.own.keys()) - known.keys()):
            raise BadSkill(f"Its {FILE}: roles and own name {unknown[0]}, which is not one of its operations.")
        for name, roles in config.roles.items():
            if unknown := sorted(each for each in roles if each.partition(".")[0] not in known[name]):
                raise BadSkill(f"Its {FILE}: roles name {unknown[0]}, which is not an argument of {name}.")


def document_url(files: Files) -> str | None:
    """The address of the document that it needs and has not got."""
    _, config, _ = _parsed(files)
    url = config.openapi if isinstance(config, Api) else None
    return url if url and "://" in url and DOCUMENT not in files else None


def _parsed(files: Files) -> tuple[Head, Section, str]:
    if FILE not in files:
        raise BadSkill(f"There is no {FILE} in it.")
    with raising(BadSkill(f"Its {FILE} is not UTF-8 text."), UnicodeDecodeError):
        return parse(files[FILE].decode())


def _found(config: Section, files: Files, room: int, credential: Credential | None) -> tuple[str, Offered]:
    if isinstance(config, Server):
        return config.url, Offered(())
    if not isinstance(config, Api | Rpc):
        return "", Offered(())
    taken = {*RESERVED, *map(str.lower, config.headers), *([credential.header.lower()] if credential else ())}
    chosen = config.operations if isinstance(config, Api) else ()
    limits = OperationLimits(room, taken, chosen, {name: _CLASSES[kind] for name, kind in config.classes.items()})
    if isinstance(config, Rpc):
        # A function of a database has its arguments side by side.
        endpoints = [_endpoint(each, "query" if config.database else "body") for each in config.functions]
        base = config.database or f"{config.url}/{config.rest_path.strip('/')}".rstrip("/")
        return base, openapi.offered(_written(endpoints), {}, limits)
    if config.openapi is None:
        return config.base_url or "", openapi.offered(_written(config.endpoints), {}, limits)
    remote = "://" in config.openapi
    name = DOCUMENT if remote else config.openapi
    if name not in files:
        fetch = "`supaclaw tool-files enable` fetches it" if remote else f"put it beside {FILE}"
        raise BadSkill(f"Its OpenAPI document {name} isn't there; {fetch}.")
    document = openapi.read(files[name], name)
    base = config.base_url or _address(openapi.server_of(document, config.openapi if remote else ""))
    return base, openapi.offered(openapi.raw_operations(document), document, limits)


def _endpoint(function: Function, part: Literal["query", "body"]) -> ApiEndpoint:
    parameters = tuple(one.model_copy(update={"part": part}) for one in function.parameters)
    return ApiEndpoint(**{**dict(function), "parameters": parameters}, method="POST", path=f"/rpc/{function.name}")


def _address(url: str) -> str:
    with raising(BadSkill("Its OpenAPI document names no usable server; set config.base_url."), ValidationError):
        return TypeAdapter[str](Address).validate_python(url)


def _written(endpoints: Sequence[ApiEndpoint]) -> Iterator[Raw]:
    """Yield a small description as an OpenAPI document would have it."""
    for each in endpoints:
        parts = [(one, one.part or _part(each, one.name)) for one in each.parameters]
        fields: dict[str, object] = {"operationId": each.name, "description": each.description}
        fields["parameters"] = [
            {"name": one.name, "in": part, "required": one.required, "schema": _schema(one)}
            for one, part in parts
            if part != "body"
        ]
        if body := [one for one, part in parts if part == "body"]:
            needed = [one.name for one in body if one.required]
            schema = {"type": "object", "properties": {one.name: _schema(one) for one in body}, "required": needed}
            fields["requestBody"] = {"required": bool(needed), "content": {"application/json": {"schema": schema}}}
        yield Raw(each.method, each.path, fields)


def _part(endpoint: ApiEndpoint, name: str) -> str:
    return "path" if f"{{{name}}}" in endpoint.path else "body" if endpoint.method in _IN_BODY else "query"


def _schema(parameter: Parameter) -> JsonObject:
    enum: JsonObject = {"enum": list(parameter.enum)} if parameter.enum else {}
    return {"type": parameter.type, "description": parameter.description, **enum}


def schema_of(parameters: Sequence[Parameter]) -> JsonObject:
    """As a model is shown the arguments of a script."""
    properties = {each.name: _schema(each) for each in parameters}
    return {"type": "object", "properties": properties, "required": [each.name for each in parameters if each.required]}


def _class(operation: Operation) -> str:
    """As its owner is asked to confirm it."""
    plain, given = operation.kind_of({}), operation.kind_of({"argument": ""})
    return plain.value if plain is given else f"{given.value}; without arguments: {plain.value}"
