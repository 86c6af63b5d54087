"""The head of a TOOL.md, by the type of the tool."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from gateway.domain.conversation.tools import ArgumentRole
from gateway.domain.settings import HttpUrl
from gateway.domain.text.texts import one_line
from gateway.secrets.facts import NAME
from gateway.workspace.skills.parsing import MAX_DESCRIPTION, MAX_NAME, NO_VERSION, BadSkill, front_matter

FILE = "TOOL.md"
RESERVED = frozenset({
    "authorization", "proxy-authorization", "cookie", "host", "content-length", "content-type", "transfer-encoding",
    "connection", "upgrade", "te", "trailer", "expect", "accept-encoding", "forwarded", "x-forwarded-for",
})  # fmt: skip
"""Headers that a model never sets."""
TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
"""A name of a header."""
PASSWORD = "password"
"""The field that the credential of a database is bound to."""
DATABASE = (
    r"^postgres(ql)?://[A-Za-z0-9_.-]{1,63}@([A-Za-z0-9.-]{1,253}|\[[0-9a-f:.]+\])(:[1-9]\d{0,4})?/[A-Za-z0-9_-]{1,63}$"
)
IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
_PLAIN = re.compile(r"[\x20-\x7e]{1,1000}")

HeaderName = Annotated[str, Field(pattern=f"^{TOKEN}$")]
SecretName = Annotated[str, Field(pattern=f"^{NAME}$")]
Settings = TypeVar("Settings", bound="Section")


def _address(url: str) -> str:
    if "@" in url or "${" in url or "?" in url or "#" in url:
        raise ValueError("must be an address without a user, a query or a secret in it")
    return url.rstrip("/")


def _no_secret(value: str) -> str:
    if "${" in value or not _PLAIN.fullmatch(value):
        raise ValueError("must be plain text without a secret: credential_secret_name names the one that is sent")
    return value


Address = Annotated[HttpUrl, AfterValidator(_address)]
Header = Annotated[str, AfterValidator(_no_secret)]


class Section(BaseModel, frozen=True, extra="forbid", populate_by_name=True, defer_build=True):
    """Frozen; unknown fields are errors; a field that is left empty counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, value: object) -> object:
        return {k: v for k, v in value.items() if v not in ("", "null", "~")} if isinstance(value, dict) else value


class Parameter(Section):
    """An argument; in the body, of which it is a field, or in the query, unless the path has a place for it."""

    name: str = Field(min_length=1, max_length=100)
    part: Literal["path", "query", "header", "body"] | None = Field(None, alias="in")
    type: Literal["string", "integer", "number", "boolean", "array", "object"] = "string"
    description: str = ""
    required: bool = False
    enum: tuple[str, ...] = ()


class ApiEndpoint(Section):
    """An operation of a small description."""

    name: str = Field(min_length=1, max_length=100)
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    path: str = Field(max_length=500)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()


class Function(Section):
    """A function of a database."""

    name: str = Field(pattern=IDENTIFIER)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()


class OAuth(Section):
    """Where a refresh token is exchanged, and as whose."""

    token_url: Address
    client_id: Header
    client_secret_name: SecretName | None = None
    scope: Header | None = None


class Requests(Section):
    """Settings of all requests; `classes` says what an operation's calls do if its method doesn't say it.

    `roles` and `own` are those of `Tool.roles` and `Tool.own_rows`, by operation.
    """

    headers: Mapping[HeaderName, Header] = {}
    credential_header: HeaderName | None = None
    classes: Mapping[str, Literal["read", "send", "irreversible"]] = {}
    roles: Mapping[str, Mapping[str, ArgumentRole]] = {}
    own: Mapping[str, str] = {}
    oauth: OAuth | None = None


class Api(Requests):
    """An API by its OpenAPI document, which is an address or a file in the folder, or by a list of endpoints."""

    base_url: Address | None = None
    openapi: HttpUrl | Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] | None = None
    operations: tuple[str, ...] = ()
    """The ones of the document that are offered; empty: all."""
    endpoints: tuple[ApiEndpoint, ...] = ()

    @model_validator(mode="after")
    def _described(self) -> "Api":
        if (self.openapi is None) == (not self.endpoints) or (self.endpoints and self.base_url is None):
            raise ValueError("needs openapi, or base_url and endpoints")
        return self


class Rpc(Requests):
    """Functions of a Postgres, only those that are listed: behind PostgREST, such as Supabase's, or by themselves."""

    url: Address | None = None
    rest_path: str = Field("/rest/v1", pattern=r"^[/A-Za-z0-9._-]*$")
    """Supabase's; / for a PostgREST of its own."""
    database: str | None = Field(None, pattern=DATABASE)
    schema_name: str = Field("public", alias="schema", pattern=IDENTIFIER)
    tls: Literal["verify", "off"] = "verify"
    """Off is for a database in the owner's own network."""
    ca: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]+$")
    """The file beside it with the certificate of an authority that the system doesn't know."""
    functions: tuple[Function, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_way(self) -> "Rpc":
        if (self.url is None) == (self.database is None):
            raise ValueError("needs url, or database")
        return self


class Server(Requests):
    """An MCP server."""

    url: Address


class Internal(Section):
    """One of the gateway's own tools."""

    tool: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")


def _words(line: str) -> str:
    words = shlex.split(line)  # a ValueError of its own is as good as ours
    if not words:
        raise ValueError("must name a program")
    return line


class Script(Section):
    """A program, in the jail. No shell reads the command: words that name a file of the folder become its path."""

    command: Annotated[str, Field(max_length=500), AfterValidator(_words)]
    parameters: tuple[Parameter, ...] = ()
    seconds: int = Field(60, ge=1, le=900)
    hosts: tuple[str, ...] = Field((), max_length=10)
    """That it reaches; each call asks then."""

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments."""
        return tuple(shlex.split(self.command))


MODELS: Mapping[str, type[Section]] = {
    "internal": Internal,
    "mcp_server": Server,
    "http_api": Api,
    "rpc": Rpc,
    "supabase_rpc": Rpc,
    "script": Script,
}


class Head(Section):
    """The fields of a TOOL.md."""

    name: str = Field(max_length=MAX_NAME)
    slug: str = Field("", max_length=32)
    description: str = Field(max_length=MAX_DESCRIPTION)
    type: Literal["internal", "mcp_server", "http_api", "rpc", "supabase_rpc", "script"]
    config: Mapping[str, object] = {}
    credential_secret_name: SecretName | None = None
    credential_description: str = Field("", max_length=500)
    credential_type: Literal["api_key", "bearer_token", "oauth_refresh_token", "none"] = "none"
    is_active: bool = True
    version: str = NO_VERSION

    @model_validator(mode="after")
    def _credential(self) -> "Head":
        if (self.credential_type == "none") != (self.credential_secret_name is None):
            raise ValueError("credential_secret_name and credential_type belong together")
        return self


@dataclass(frozen=True, slots=True)
class Credential:
    """Which secret is sent, in which header, as what; `oauth` exchanges it first."""

    secret: str
    header: str
    text: str
    """Of the header; `{}` stands for the value."""
    about: str
    oauth: OAuth | None = None
    field: bool = False
    """Of a database: it goes into a field of that name, not into a header."""

    @property
    def place(self) -> str:
        """Where it is sent."""
        return f"{'field' if self.field else 'header'}:{self.header}"


def parse(text: str) -> tuple[Head, Section, str]:
    """Its head, its config and what is below; raises `BadSkill`, in one line."""
    fields, body = front_matter(text, FILE)
    head = _checked(Head, fields, "")
    return head, _checked(MODELS[head.type], head.config, "config."), body


def credential_of(head: Head, config: Section) -> Credential | None:
    """Only ever in a header: a secret in an address or a body would be published by the host it is sent to."""
    if head.credential_secret_name is None:
        return None
    if not isinstance(config, Requests):
        why = ", which could show it to anybody" if isinstance(config, Script) else ""
        raise BadSkill(f"Its {FILE}: a tool of type {head.type}{why} takes no credential.")
    about = one_line(head.credential_description, 500)
    if isinstance(config, Rpc) and config.database is not None:
        if head.credential_type != "api_key" or config.credential_header or config.headers or config.oauth:
            raise BadSkill(f"Its {FILE}: the credential of a database is its password, of credential_type api_key.")
        return Credential(head.credential_secret_name, PASSWORD, "{}", about, field=True)
    oauth = config.oauth if not isinstance(config, Server) else None
    if (head.credential_type == "oauth_refresh_token") != (oauth is not None):
        raise BadSkill(f"Its {FILE}: an API's config.oauth and credential_type oauth_refresh_token belong together.")
    plain = head.credential_type == "api_key"
    usual = "Authorization" if not plain else "apikey" if isinstance(config, Rpc) else "X-API-Key"
    header = config.credential_header or usual
    if header.lower() in RESERVED - {"authorization"} or header.lower() in map(str.lower, config.headers):
        raise BadSkill(f"Its {FILE}: the credential can't be sent in the header {header}.")
    return Credential(head.credential_secret_name, header, "{}" if plain else "Bearer {}", about, oauth)


def _checked(model: type[Settings], fields: Mapping[object, object] | Mapping[str, object], where: str) -> Settings:
    """Validate the fields; raises `BadSkill`, whose text leaves out the values because they may be untrusted."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[:3]
        places = [one_line(where + ".".join(map(str, each["loc"])), 100).rstrip(".") for each in found]
        told = [f"{place} {one_line(each['msg'], 200)}".strip() for place, each in zip(places, found, strict=True)]
        raise BadSkill(f"Its {FILE}: {'; '.join(told)}.") from error
