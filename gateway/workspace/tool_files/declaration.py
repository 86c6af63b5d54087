"""TOOL.md: a head in YAML that declares a tool, and below it how the model is to use it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, TypeVar, assert_never

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gateway.domain.texts import one_line
from gateway.domain.urls import HttpUrl
from gateway.secrets.facts import NAME
from gateway.workspace.skills.folder import BadSkill, Files
from gateway.workspace.skills.parsing import MAX_DESCRIPTION, MAX_NAME, NO_VERSION, front_matter, is_name

FILE = "TOOL.md"
MAX_SLUG = 32
RESERVED = frozenset({
    "authorization", "proxy-authorization", "cookie", "host", "content-length", "content-type", "transfer-encoding",
    "connection", "upgrade", "te", "trailer", "expect", "accept-encoding", "forwarded", "x-forwarded-for",
})  # fmt: skip
"""Headers that a model never sets."""
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
_PLAIN = re.compile(r"[\x20-\x7e]{1,1000}")

Kind: TypeAlias = Literal["internal", "mcp_server", "http_api", "rpc", "script"]
Class: TypeAlias = Literal["read", "send", "irreversible"]
HeaderName = Annotated[str, Field(pattern=f"^{_TOKEN}$")]
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


class Section(BaseModel):
    """Frozen; unknown fields are errors; a field that is left empty counts as left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, value: object) -> object:
        return {k: v for k, v in value.items() if v not in ("", "null", "~")} if isinstance(value, dict) else value


class Parameter(Section):
    """An argument of an operation; one in the body is a field of it."""

    name: str = Field(min_length=1, max_length=100)
    part: Literal["path", "query", "header", "body"] | None = Field(None, alias="in")
    type: Literal["string", "integer", "number", "boolean", "array", "object"] = "string"
    description: str = ""
    required: bool = False
    enum: tuple[str, ...] = ()


class Endpoint(Section):
    """An operation of a small description."""

    name: str = Field(min_length=1, max_length=100)
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    path: str = Field(pattern=r"^/[^?#\s\\$]*$", max_length=500)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()


class Function(Section):
    """A function of a database, called through PostgREST."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")
    description: str = ""
    parameters: tuple[Parameter, ...] = ()


class OAuth(Section):
    """Where a refresh token is exchanged, and as whose."""

    token_url: Address
    client_id: Header
    client_secret_name: SecretName | None = None
    scope: Header | None = None


class Requests(Section):
    """What requests of every API have in common."""

    headers: Mapping[HeaderName, Header] = {}
    credential_header: HeaderName | None = None
    classes: Mapping[str, Class] = {}
    """What calls of an operation do, where its method says too much or too little."""
    oauth: OAuth | None = None


class Api(Requests):
    """An API by its OpenAPI document, which is an address or a file in the folder, or by a list of endpoints."""

    base_url: Address | None = None
    openapi: HttpUrl | Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] | None = None
    operations: tuple[str, ...] = ()
    """The ones of the document that are offered; empty: all."""
    endpoints: tuple[Endpoint, ...] = ()

    @model_validator(mode="after")
    def _described(self) -> "Api":
        if (self.openapi is None) == (not self.endpoints) or (self.endpoints and self.base_url is None):
            raise ValueError("needs openapi, or base_url and endpoints")
        return self


class Rpc(Requests):
    """Functions of a Postgres behind PostgREST, such as Supabase's; only those that are listed."""

    url: Address
    functions: tuple[Function, ...] = Field(min_length=1, max_length=64)
    rest_path: str = Field("/rest/v1", pattern=r"^[/A-Za-z0-9._-]*$")
    """Supabase's; / for a PostgREST of its own."""


class McpServer(Section):
    """A server of tools; the MCP client connects to it."""

    url: Address
    headers: Mapping[HeaderName, Header] = {}
    credential_header: HeaderName | None = None


class Internal(Section):
    """One of the gateway's own tools."""

    tool: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")


class Script(Section):
    """A program in the folder."""

    command: str = Field(min_length=1, max_length=500)


Config: TypeAlias = Api | Rpc | McpServer | Internal | Script


class Head(Section):
    """The fields of a TOOL.md; `config` is checked by the type."""

    name: str = Field(max_length=MAX_NAME)
    slug: str = ""
    description: str = Field(max_length=MAX_DESCRIPTION)
    type: Kind
    config: Mapping[str, object] = {}
    credential_secret_name: SecretName | None = None
    credential_description: str = Field("", max_length=500)
    credential_type: Literal["api_key", "bearer_token", "oauth_refresh_token", "none"] = "none"
    is_active: bool = True
    version: str = NO_VERSION

    @field_validator("type", mode="before")
    @classmethod
    def _same(cls, value: object) -> object:
        return "rpc" if value == "supabase_rpc" else value

    @model_validator(mode="after")
    def _credential(self) -> "Head":
        if (self.credential_type == "none") != (self.credential_secret_name is None):
            raise ValueError("credential_secret_name and credential_type belong together")
        return self


@dataclass(frozen=True, slots=True)
class Credential:
    """Which secret is sent, as what, in which header; `oauth` exchanges it first."""

    secret: str
    header: str
    prefix: str
    about: str
    oauth: OAuth | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A TOOL.md, checked."""

    slug: str
    name: str
    description: str
    version: str
    type: Kind
    config: Config
    credential: Credential | None
    active: bool
    body: str


def declaration_of(files: Files) -> Declaration:
    """Parse the TOOL.md among its files; raises `BadSkill`, in one line."""
    if FILE not in files:
        raise BadSkill(f"There is no {FILE} in it.")
    try:
        fields, body = front_matter(files[FILE].decode(), FILE)
    except UnicodeDecodeError as error:
        raise BadSkill(f"Its {FILE} is not UTF-8 text.") from error
    head = _checked(Head, fields, "")
    slug = head.slug or head.name
    if not is_name(slug) or len(slug) > MAX_SLUG:
        raise BadSkill(f"Its {FILE}: slug has to be a-z, 0-9 and single hyphens, at most {MAX_SLUG} characters.")
    config = _config(head)
    about = one_line(head.description, MAX_DESCRIPTION)
    name, version = one_line(head.name, MAX_NAME), one_line(head.version, 40)
    credential = _credential(head, config)
    return Declaration(slug, name, about, version, head.type, config, credential, head.is_active, body)


def _config(head: Head) -> Config:
    match head.type:
        case "http_api":
            return _checked(Api, head.config, "config.")
        case "rpc":
            return _checked(Rpc, head.config, "config.")
        case "mcp_server":
            return _checked(McpServer, head.config, "config.")
        case "internal":
            return _checked(Internal, head.config, "config.")
        case "script":
            return _checked(Script, head.config, "config.")
        case unreachable:
            assert_never(unreachable)


def _credential(head: Head, config: Config) -> Credential | None:
    """Only ever in a header: a secret in an address or a body would be published by the host it is sent to."""
    if head.credential_secret_name is None:
        return None
    if isinstance(config, Internal | Script):
        raise BadSkill(f"Its {FILE}: a tool of type {head.type} takes no credential.")
    oauth = None if isinstance(config, McpServer) else config.oauth
    if (head.credential_type == "oauth_refresh_token") != (oauth is not None):
        raise BadSkill(f"Its {FILE}: config.oauth and credential_type oauth_refresh_token belong together.")
    key = "apikey" if isinstance(config, Rpc) else "X-API-Key"
    header = config.credential_header or (key if head.credential_type == "api_key" else "Authorization")
    prefix = "" if head.credential_type == "api_key" else "Bearer "
    about = one_line(head.credential_description, 500)
    if header.lower() in RESERVED - {"authorization"} or header.lower() in map(str.lower, config.headers):
        raise BadSkill(f"Its {FILE}: the credential can't be sent in the header {header}.")
    return Credential(head.credential_secret_name, header, prefix, about, oauth)


def _checked(model: type[Settings], fields: Mapping[object, object] | Mapping[str, object], where: str) -> Settings:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise BadSkill(f"Its {FILE}: {'; '.join(_faults(error, where))}.") from error


def _faults(error: ValidationError, where: str) -> Sequence[str]:
    """What is wrong, in a line each; never the value, which may be anybody's words."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:3]
    named = [(one_line(".".join(map(str, each["loc"])), 100), one_line(each["msg"], 200)) for each in found]
    return [f"{where}{place}: {words}" if place else f"{where.rstrip('.')} {words}".strip() for place, words in named]
