"""The model of config.json; `{}` is a complete configuration. Its JSON Schema is for editors and the form."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, SecretStr, model_validator

from gateway.config.value_types import Duration, Hours, Networks, PublicUrl
from gateway.domain.json import OBJECT
from gateway.domain.settings import HttpUrl, ModelName, ModelSettings, PrivateEntry, VoiceReply
from gateway.domain.time import zone
from gateway.secrets.signatures import SignedSource

HostName = Annotated[str, Field(pattern=r"^[a-z0-9._-]+$")]
SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
WebHost = Annotated[str, Field(pattern=r"^(?i:(\*\.)?[a-z0-9._:-]+)$")]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
JsonSection = Mapping[str, JsonValue]


class Section(BaseModel):
    """Base of every section: frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _zone(name: str) -> str:
    return zone(name).key


class Owner(BaseModel):
    """The agent's owner; every other key is a channel, with the owner's id there as its value."""

    model_config = ConfigDict(frozen=True, extra="allow", coerce_numbers_to_str=True)
    __pydantic_extra__: dict[str, str | None] = Field(init=False)

    name: str = Field("Owner", min_length=1, description="What the agent calls you.")
    timezone: Annotated[str, AfterValidator(_zone)] | None = Field(
        None, description='Your time zone, such as "Europe/Berlin"; null: the one noted in USER.md.'
    )

    @property
    def ids(self) -> Mapping[str, str]:
        """The owner's platform ids by channel, without channels set to null."""
        return {channel: id for channel, id in self.__pydantic_extra__.items() if id is not None}


class HeartbeatSettings(Section):
    """Periodic checks by the agent."""

    every: Duration | None = Field(timedelta(minutes=30), description="Time between heartbeats; null: never.")
    active_hours: Hours | None = Field(
        None, description='When they may run: "08:00-22:00 Europe/Berlin", or in your own zone; null: always.'
    )
    to: str | None = Field(None, min_length=1, description="The channel for its messages; null: where you wrote last.")
    model: ModelName | None = Field(None, min_length=1, description="A cheaper model for them; null: the usual ones.")
    day_usd: Usd | None = Field(0.5, description="US dollars that heartbeats may cost a day; null: no limit.")


class Compaction(Section):
    """When a long conversation is summarised."""

    at_tokens: int = Field(64_000, ge=1, description="Compact a conversation once its transcript has this many tokens.")


class CheckpointSettings(Section):
    """Checkpoints of the workspace."""

    every: Duration | None = Field(timedelta(minutes=10), description="Time between checkpoints; null: never.")


class BackupSettings(Section):
    """Backups that the gateway makes by itself, without secrets."""

    every: Duration | None = Field(None, description="Time between two backups; null: none.")
    to: Path | None = Field(None, description="A folder for them, of another machine at best; null: none.")
    keep: int = Field(14, ge=1, description="How many of them to keep there.")


class Exec(Section):
    """Shell commands."""

    mode: Literal["auto", "off"] = Field(
        "auto", description='"auto": run commands in the jail this machine offers, none without one; "off": never.'
    )


class BashSettings(Section):
    """The shell on virtual files."""

    allow_urls: tuple[HttpUrl, ...] = Field(
        (), description="Addresses that its curl may read, with what is below them; empty: none."
    )


class WebSearch(Section):
    """Where the agent searches the web."""

    provider: Literal["auto", "brave", "tavily", "exa", "searxng", "ddgs"] = Field(
        "auto", description='"auto": those with a key or an address below, in this order, then ddgs, which needs none.'
    )
    brave_api_key: SecretStr | None = Field(None, description="Key of the Brave Search API (`BRAVE_API_KEY`).")
    tavily_api_key: SecretStr | None = Field(None, description="Key of Tavily (`TAVILY_API_KEY`).")
    exa_api_key: SecretStr | None = Field(None, description="Key of Exa (`EXA_API_KEY`).")
    searxng_url: HttpUrl | None = Field(None, description="Address of a SearXNG that answers JSON (`SEARXNG_URL`).")


class WebAccess(Section):
    """Which hosts the agent may read, and where it searches; a name covers its subdomains."""

    allow_hosts: tuple[WebHost, ...] = Field((), description="The only hosts that may be read; empty: any public host.")
    deny_hosts: tuple[WebHost, ...] = Field((), description="Hosts that are never read.")
    search: WebSearch = Field(WebSearch(), description="Where the agent searches the web.")


class Net(Section):
    """Hosts in private networks that the gateway may connect to."""

    private_allow: tuple[PrivateEntry, ...] = Field(
        (), description='Hosts or networks of your own, with a port if you can, such as "nas.lan:8080"; empty: none.'
    )


class McpServer(Section):
    """A server of the Model Context Protocol."""

    url: HttpUrl | None = Field(None, description="Address of a server that speaks streamable HTTP.")
    headers: Mapping[str, SecretStr] = Field({}, description="Sent with each request, such as Authorization.")
    client_id: str = Field("", description="Of the app registered for sign-ins by OAuth; empty: registers itself.")
    client_secret: SecretStr = Field(SecretStr(""), description="Its secret, if it has one.")
    enabled: bool = Field(True, description="Whether its tools are offered.")
    members: bool = Field(False, description="Whether members may use the tools that you confirmed, too.")
    timeout: Duration = Field(timedelta(minutes=1), description="How long a call may take.")
    type: str = Field("http", description="sse: speaks the old HTTP+SSE transport; others are ignored.")
    command: str | None = Field(None, description="A program to start in the jail, where there is no url.")
    args: tuple[str, ...] = Field((), description="Its arguments.", repr=False)
    env: Mapping[str, SecretStr] = Field({}, description="Its variables.")
    reads: tuple[str, ...] = Field((), description="Files and folders that it may read, by their full paths.")
    hosts: tuple[str, ...] = Field(
        (), description='Hosts that it may reach, as host or host:port; "*" alone: any public one.'
    )


def _server_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,32}", name):
        raise ValueError("the name of a server has letters, digits and hyphens only, 32 at most")
    return name


McpName = Annotated[str, AfterValidator(_server_name)]


class Tools(Section):
    """The tools of the agent."""

    exec: Exec = Field(Exec(), description="Shell commands.")
    bash: BashSettings = Field(BashSettings(), description="The shell on virtual files.")
    web: WebAccess = Field(WebAccess(), description="Reading the web.")
    mcp: Mapping[McpName, McpServer] = Field({}, description="MCP servers by name.", repr=False)


class BudgetSettings(Section):
    """Limits on the cost of models, after which the agent stops and asks; null: no limit."""

    run_usd: Usd | None = Field(0.5, description="US dollars for one run; null: no limit.")
    task_usd: Usd | None = Field(
        1.0, description="US dollars for one tree of tasks, after which it asks for more; null: no limit."
    )
    day_usd: Usd | None = Field(2.0, description="US dollars a day; null: no limit.")
    month_usd: Usd | None = Field(20.0, description="US dollars a month; null: no limit.")
    day_tokens: int | None = Field(None, ge=0, description="Tokens a day of models without a price; null: no limit.")


class Reviews(Section):
    """Questions that tasks in the background ask a person."""

    expire: Duration = Field(timedelta(days=7), description="How long one waits for an answer; then its task fails.")
    remind: Duration | None = Field(
        timedelta(days=1), description="How long until you are shown it again, and after that again; null: never."
    )


class LimitSettings(Section):
    """Limits on the resources of the process."""

    memory_mb: int | None = Field(
        None,
        ge=128,
        description="Memory, in MB, above which it sheds load; null: half of what the machine or container has.",
    )
    file_mb: int = Field(50, ge=1, le=2_000, description="The largest accepted file, in megabytes.")
    member_mb: int | None = Field(
        500, ge=1, description="Space, in MB, for the files of a member or a group; null: no limit."
    )


class Logs(Section):
    """The log files."""

    keep: Duration | None = Field(None, description="How long to keep log files; null: forever.")


class Retention(Section):
    """How long what is over is kept. Messages, memories, files and the audit trail are never cleared away."""

    keep: Duration | None = Field(
        timedelta(days=90),
        ge=timedelta(days=32),
        description="How long to keep tasks that have ended, with their steps, triggers and deliveries; null: forever.",
    )
    thinking: Duration | None = Field(
        timedelta(days=30), description="How long to keep what models thought before their answers; null: forever."
    )


class WebSettings(Section):
    """Where the page and the APIs listen; a change needs a restart."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on (`SUPACLAW_HOST`); needs a restart.")
    port: int = Field(8787, ge=0, le=65_535, description="Port to listen on (`SUPACLAW_PORT`); needs a restart.")
    public_url: PublicUrl | None = Field(
        None, description="Address of a reverse proxy in front (`SUPACLAW_PUBLIC_URL`); null: none; needs a restart."
    )
    proxies: Networks = Field(
        (), description='Networks of a proxy on other machines, such as "10.0.0.0/8"; needs a restart.'
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (), description='More names that programs reach it by, such as "host.docker.internal"; without port.'
    )


class DatabaseSettings(Section):
    """Where Postgres is; a change needs a restart."""

    url: SecretStr | None = Field(
        None, description="DSN of a Postgres 15+ (`SUPACLAW_DATABASE_URL`); null: the embedded one; needs a restart."
    )
    secrets: Literal["own", "supabase_vault"] = Field(
        "own", description="Where new secrets are kept: under the master key, or in Supabase Vault; needs a restart."
    )

    @property
    def in_supabase_vault(self) -> bool:
        """Whether new secrets are kept there."""
        return self.secrets == "supabase_vault"


def _bucket(text: str) -> str:
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9._-]{2,62}(/[A-Za-z0-9._-]+)*/?", text):
        raise ValueError('must be a bucket, and a prefix if you like: "s3://bucket/prefix"')
    return text.rstrip("/")


class WorkspaceStore(Section):
    """An object store that keeps the workspace the same on several machines."""

    url: Annotated[str, AfterValidator(_bucket)] | None = Field(
        None, description='A bucket, with a prefix if you like: "s3://bucket/prefix"; null: the local folder only.'
    )
    endpoint: HttpUrl | None = Field(None, description="Address of the S3 protocol there; null: Amazon's.")
    region: str = Field("us-east-1", pattern=r"^[a-z0-9-]+$", description="Region of the bucket.")
    access_key: SecretStr | None = Field(None, description="Id of the access key.")
    secret_key: SecretStr | None = Field(None, description="The access key itself.")
    every: Duration = Field(timedelta(seconds=30), description="Time between two looks for changes.")


class VoiceSettings(Section):
    """Answers that are also read aloud."""

    reply: VoiceReply = Field(
        "off", description='When an answer is also a voice message: "off", "voice" for recordings only, or "always".'
    )
    model: str | None = Field(None, description="The model that reads aloud, such as `openai/gpt-4o-mini-tts`.")
    name: str = Field("alloy", min_length=1, description="The voice, as its provider calls it.")

    @model_validator(mode="after")
    def _has_model(self) -> Self:
        if self.reply != "off" and self.model is None:
            raise ValueError('reply needs a model, such as "openai/gpt-4o-mini-tts"; name one in voice.model')
        return self


HookKind = Literal["answer.sent", "task.ended", "review.asked", "budget.reached"]


class HookSettings(Section):
    """A program that is told what happens, by signed Standard Webhooks."""

    url: HttpUrl = Field(description="Where to post; in a private network `net.private_allow` must name it, too.")
    secret: SecretStr = Field(min_length=8, description='The key of the signatures: "whsec_" and base64.')
    events: tuple[HookKind, ...] = Field(get_args(HookKind), description="What it is told.")
    content: bool = Field(False, description="Whether it gets the words too, not only ids and numbers.")


class UpdateSettings(Section):
    """Newer versions."""

    check: bool = Field(False, description="Whether `supaclaw doctor` and Health look for a newer version.")


class Config(Section):
    """The whole of config.json."""

    owner: Owner = Field(Owner(), description="The agent's owner.")
    models: ModelSettings = Field(ModelSettings(), description="Which models answer.")
    channels: Mapping[str, JsonSection] = Field(
        {}, description="Messengers by name, each with its own settings.", repr=False
    )
    voice: VoiceSettings = Field(VoiceSettings(), description="Answers that are also read aloud.")
    heartbeat: HeartbeatSettings = Field(HeartbeatSettings(), description="Periodic checks by the agent.")
    compaction: Compaction = Field(Compaction(), description="When a long conversation is summarised.")
    checkpoints: CheckpointSettings = Field(CheckpointSettings(), description="Checkpoints of the workspace.")
    backup: BackupSettings = Field(BackupSettings(), description="Backups that the gateway makes by itself.")
    workspace: WorkspaceStore = Field(WorkspaceStore(), description="The workspace on several machines.")
    tools: Tools = Field(Tools(), description="What the agent may use.")
    hooks: Mapping[str, HookSettings] = Field({}, description="Programs that are told what happens, by name.")
    triggers: Mapping[SourceName, SignedSource] = Field({}, description="Programs that sign their triggers, by name.")
    net: Net = Field(Net(), description="What may be reached in private networks.")
    budgets: BudgetSettings = Field(BudgetSettings(), description="Limits on the cost of models.")
    reviews: Reviews = Field(Reviews(), description="Questions that tasks ask a person.")
    limits: LimitSettings = Field(LimitSettings(), description="Limits on the resources of the process.")
    logs: Logs = Field(Logs(), description="The log files.")
    retention: Retention = Field(Retention(), description="How long what is over is kept.")
    update: UpdateSettings = Field(UpdateSettings(), description="Newer versions.")
    web: WebSettings = Field(WebSettings(), description="Where the page and the APIs listen.")
    database: DatabaseSettings = Field(DatabaseSettings(), description="Where Postgres is.")


_REFERENCE: JsonValue = {"type": "string", "pattern": "^\\$(env|secret):.+"}
_SCALAR_TYPES = ("integer", "number", "boolean")


def json_schema() -> dict[str, JsonValue]:
    """The schema, draft 2020-12; numbers and booleans may also be `$env:` or `$secret:` references."""
    plain = OBJECT.validate_python(Config.model_json_schema())
    own: JsonValue = {"type": "string", "description": "Where an editor finds this schema."}
    plain["properties"] = {**OBJECT.validate_python(plain["properties"]), "$schema": own}
    described = {key: allow_references(value) for key, value in plain.items()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def allow_references(node: JsonValue) -> JsonValue:
    """`node` with references allowed for its numbers and booleans."""
    if isinstance(node, list):
        return [allow_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") in _SCALAR_TYPES:
        about = {key: value for key, value in node.items() if key in ("default", "description", "title")}
        return about | {"anyOf": [{key: value for key, value in node.items() if key not in about}, _REFERENCE]}
    return {key: allow_references(value) for key, value in node.items()}
