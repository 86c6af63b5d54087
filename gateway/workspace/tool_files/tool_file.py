"""A tool as its files declare it: what can be called, at which address, with which credential."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from gateway.domain.json import JsonObject
from gateway.domain.operations import Operation
from gateway.domain.texts import one_line
from gateway.domain.tools import ToolClass
from gateway.workspace.skills.folder import BadSkill, Files
from gateway.workspace.skills.parsing import Skill
from gateway.workspace.tool_files import openapi
from gateway.workspace.tool_files.declaration import (
    RESERVED,
    Address,
    Api,
    Class,
    Declaration,
    Parameter,
    Requests,
    Rpc,
    declaration_of,
)
from gateway.workspace.tool_files.openapi import MAX_OPERATIONS, Given, LeftOut, Offered, distinct, plain_name

FOLDER = (".agents", "tools")
DOCUMENT = "openapi.json"
"""Where a document that was fetched is kept: what is confirmed is what was fetched, whatever the address says later."""
LONGEST_NAME = 64
_CLASSES: Mapping[Class, ToolClass] = {
    "read": ToolClass.NET,
    "send": ToolClass.SEND,
    "irreversible": ToolClass.IRREVERSIBLE,
}


@dataclass(frozen=True, slots=True)
class ToolFile(Skill):
    """A tool; `name` is its slug. `base` is the address that paths of operations follow."""

    declared: Declaration
    base: str = ""
    operations: tuple[Operation, ...] = ()
    left_out: tuple[str, ...] = ()

    def summary(self) -> Sequence[str]:
        """What it reaches, with which credential, and what can be called."""
        credential, lines = self.declared.credential, [f"type {self.declared.type} {self.base}".strip()]
        if credential:
            to = f" after {credential.oauth.token_url}" if credential.oauth else ""
            lines.append(f"credential {credential.secret} in header:{credential.header}{to}")
        lines += [f"{self.name}_{each.name}: {each.method} {each.path} ({_class(each)})" for each in self.operations]
        return [*lines, *(f"left out: {each}" for each in self.left_out), *self.declared_only]

    @property
    def declared_only(self) -> Sequence[str]:
        """Why nothing of it can be called yet."""
        return ["off: needs the jail, in which scripts run"] if self.declared.type == "script" else []


def tool_file_of(files: Files) -> ToolFile:
    """Raises `BadSkill`, in one line."""
    declared = declaration_of(files)
    match declared.config:
        case Api() as api:
            base, found = _api(api, files, LONGEST_NAME - 1 - len(declared.slug))
        case Rpc() as rpc:
            base, found = f"{rpc.url}/{rpc.rest_path.strip('/')}".rstrip("/"), _functions(rpc)
        case other:
            base, found = getattr(other, "url", ""), Offered(())
    found = _without_credential(found, declared)
    if isinstance(declared.config, Requests):
        _check_classes(declared.config.classes, found.operations)
    about = (("type", declared.type), ("address", base), ("label", declared.name))
    return ToolFile(
        declared.slug,
        declared.description,
        declared.version,
        tuple((key, one_line(value, 200)) for key, value in about if value),
        declared.body,
        declared,
        base,
        found.operations,
        found.left_out,
    )


def document_url(files: Files) -> str | None:
    """The address of the document that it needs and has not got."""
    config = declaration_of(files).config
    url = config.openapi if isinstance(config, Api) else None
    return url if url and "://" in url and DOCUMENT not in files else None


def _api(api: Api, files: Files, room: int) -> tuple[str, Offered]:
    if api.openapi is None:
        assert api.base_url is not None, "checked with the endpoints"
        return api.base_url, Offered(_endpoints(api, room))
    remote = "://" in api.openapi
    name = DOCUMENT if remote else api.openapi
    if name not in files:
        fetch = "`supaclaw tools enable` fetches it" if remote else "put it beside TOOL.md"
        raise BadSkill(f"Its OpenAPI document {name} isn't there; {fetch}.")
    document = openapi.read(files[name], name)
    base = api.base_url or _address(openapi.server_of(document, api.openapi if remote else ""))
    return base, openapi.offered(document, api.operations, _classes(api), room)


def _address(url: str) -> str:
    try:
        return TypeAdapter[str](Address).validate_python(url)
    except ValidationError as error:
        raise BadSkill("Its OpenAPI document names no usable server; set config.base_url.") from error


def _endpoints(api: Api, room: int) -> tuple[Operation, ...]:
    found, kinds = list[Operation](), _classes(api)
    for each in api.endpoints:
        name, in_body = plain_name(each.name, room), each.method in ("POST", "PUT", "PATCH")
        given = _given(each.name, each.parameters, each.path, in_body=in_body)
        about = one_line(each.description, openapi.MAX_WORDS)
        try:
            found.append(given.operation(name, about, each.method, each.path, kinds.get(each.name, kinds.get(name))))
        except LeftOut as reason:
            raise BadSkill(f"Its endpoint {one_line(each.name, 80)}: {reason}.") from reason
    if len(found) > MAX_OPERATIONS:
        raise BadSkill(f"It has more than {MAX_OPERATIONS} endpoints.")
    return distinct(found)


def _functions(rpc: Rpc) -> Offered:
    kinds = _classes(rpc)
    given = {each: _given(each.name, each.parameters, "", in_body=True) for each in rpc.functions}
    found = [
        each_given.operation(
            each.name, one_line(each.description, 300), "POST", f"/rpc/{each.name}", kinds.get(each.name)
        )
        for each, each_given in given.items()
    ]
    return Offered(distinct(found))


def _given(name: str, parameters: Sequence[Parameter], path: str, *, in_body: bool) -> Given:
    given = Given()
    for each in parameters:
        part = each.part or ("path" if f"{{{each.name}}}" in path else "body" if in_body else "query")
        words = {"description": one_line(each.description, openapi.MAX_WORDS)} if each.description else {}
        schema = {"type": each.type, **words, **({"enum": list(each.enum)} if each.enum else {})}
        try:
            given.add(each.name, part, schema, required=each.required or part == "path")
        except LeftOut as reason:
            raise BadSkill(f"Its endpoint {one_line(name, 80)}: {reason}.") from reason
    return given


def _classes(config: Requests) -> Mapping[str, ToolClass]:
    return {name: _CLASSES[kind] for name, kind in config.classes.items()}


def _check_classes(classes: Mapping[str, Class], operations: Sequence[Operation]) -> None:
    """A misspelt name would leave a call less guarded than its owner wanted."""
    names = {each.name for each in operations}
    for name in classes:
        if not any(each == plain_name(name, len(each)) for each in names):
            raise BadSkill(f"There is no operation {one_line(name, 80)!r} for config.classes.")


def _without_credential(found: Offered, declared: Declaration) -> Offered:
    """Arguments that would set a header which is not the model's to set are not offered."""
    own = {declared.credential.header.lower()} if declared.credential else set[str]()
    config = declared.config
    fixed = set(map(str.lower, config.headers)) if isinstance(config, Requests) else set[str]()
    return Offered(tuple(_free(each, own | fixed | RESERVED) for each in found.operations), found.left_out)


def _free(operation: Operation, taken: set[str] | frozenset[str]) -> Operation:
    kept = {
        name: slot
        for name, slot in operation.slots.items()
        if slot.part != "header" or not (slot.name.lower() in taken or slot.name.lower().startswith("proxy-"))
    }
    if len(kept) == len(operation.slots):
        return operation
    properties = operation.schema["properties"]
    assert isinstance(properties, dict), "as it was made here"
    schema: JsonObject = {
        "type": "object",
        "properties": {name: each for name, each in properties.items() if name in kept},
        "required": [name for name in operation.required if name in kept],
    }
    return Operation(
        operation.name, operation.description, operation.method, operation.path, kept, schema, operation.kind
    )


def _class(operation: Operation) -> str:
    """As its owner is asked to confirm it."""
    plain, given = operation.kind_of({}), operation.kind_of({"argument": ""})
    return plain.value if plain is given else f"{given.value}; without arguments: {plain.value}"
