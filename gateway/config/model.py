"""The model of config.json; `{}` is a complete configuration. Its JSON Schema is for editors and the form."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, JsonValue, SecretStr, model_validator

from gateway.config.value_types import Duration, Hours, Networks, PublicUrl
from gateway.domain.json import OBJECT
from gateway.domain.settings import Described, HttpUrl, ModelName, ModelSettings, PrivateEntry, Section, VoiceReply
from gateway.domain.time import zone
from gateway.secrets.signatures import SignedSource

HostName = Annotated[str, Field(pattern=r"^[a-z0-9._-]+$")]
SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
WebHost = Annotated[str, Field(pattern=r"^(?i:(\*\.)?[a-z0-9._:-]+)$")]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
JsonSection = Mapping[str, JsonValue]


class Owner(Described, extra="allow", coerce_numbers_to_str=True):
    """The agent's owner; every other key is a channel, with the owner's id there as its value."""

    __pydantic_extra__: dict[str, str | None] = Field(init=False)

    name: str = Field("Owner", min_length=1)
    """The name that the agent calls you by."""
    timezone: Annotated[str, AfterValidator(lambda name: zone(name).key)] | None = None
    """Your time zone, such as "Europe/Berlin"; null: the one noted in USER.md."""

    @property
    def ids(self) -> Mapping[str, str]:
        """The owner's platform ids by channel, without channels set to null."""
        return {channel: id for channel, id in self.__pydantic_extra__.items() if id is not None}


class HeartbeatSettings(Section):
    """Periodic checks by the agent."""

    every: Duration | None = timedelta(minutes=30)
    """Time between heartbeats; null: never."""
    active_hours: Hours | None = None
    """When they may run: "08:00-22:00 Europe/Berlin", or in your own zone; null: always."""
    to: str | None = Field(None, min_length=1)
    """The channel for its messages; null: where you wrote last."""
    model: ModelName | None = Field(None, min_length=1)
    """A cheaper model for them; null: the usual ones."""
    day_usd: Usd | None = 0.5
    """US dollars that heartbeats may cost a day; null: no limit."""


class Compaction(Section):
    """When a long conversation is summarised."""

    at_tokens: int = Field(64_000, ge=1)
    """Compact a conversation once its transcript has this many tokens."""


class CheckpointSettings(Section):
    """Checkpoints of the workspace."""

    every: Duration | None = timedelta(minutes=10)
    """Time between checkpoints; null: never."""


class Exec(Section):
    """Shell commands."""

    mode: Literal["auto", "off"] = "auto"
    """ "auto": run commands in the jail this machine offers, none without one; "off": never."""


class BashSettings(Section):
    """The shell on virtual files."""

    allow_urls: tuple[HttpUrl, ...] = ()
    """Addresses that its curl may read, with what is below them; empty: none."""


class WebSearch(Section):
    """Where the agent searches the web."""

    provider: Literal["auto", "brave", "tavily", "exa", "searxng", "ddgs"] = "auto"
    """ "auto": those with a key or an address below, in this order, then ddgs, which needs none."""
    brave_api_key: SecretStr | None = None
    """Key of the Brave Search API (`BRAVE_API_KEY`)."""
    tavily_api_key: SecretStr | None = None
    """Key of Tavily (`TAVILY_API_KEY`)."""
    exa_api_key: SecretStr | None = None
    """Key of Exa (`EXA_API_KEY`)."""
    searxng_url: HttpUrl | None = None
    """Address of a SearXNG that answers JSON (`SEARXNG_URL`)."""


class WebAccess(Section):
    """Which hosts the agent may read, and where it searches; a name covers its subdomains."""

    allow_hosts: tuple[WebHost, ...] = ()
    """The only hosts that may be read; empty: any public host."""
    deny_hosts: tuple[WebHost, ...] = ()
    """Hosts that are never read."""
    search: WebSearch = WebSearch()
    """Where the agent searches the web."""


class Net(Section):
    """Hosts in private networks that the gateway may connect to."""

    private_allow: tuple[PrivateEntry, ...] = ()
    """Hosts or networks of your own, with a port if you can, such as "nas.lan:8080"; empty: none."""


class McpServer(Section):
    """A server of the Model Context Protocol."""

    url: HttpUrl | None = None
    """Address of a server that speaks streamable HTTP."""
    headers: Mapping[str, SecretStr] = {}
    """Sent with each request, such as Authorization."""
    client_id: str = ""
    """Of the app registered for sign-ins by OAuth; empty: registers itself."""
    client_secret: SecretStr = SecretStr("")
    """Its secret, if it has one."""
    enabled: bool = True
    """Whether its tools are offered."""
    members: bool = False
    """Whether members may use the tools that you confirmed, too."""
    timeout: Duration = timedelta(minutes=1)
    """How long a call may take."""
    type: str = "http"
    """sse: speaks the old HTTP+SSE transport; others are ignored."""
    command: str | None = None
    """A program to start in the jail, where there is no url."""
    args: tuple[str, ...] = Field((), repr=False)
    """Its arguments."""
    env: Mapping[str, SecretStr] = {}
    """Its variables."""
    reads: tuple[str, ...] = ()
    """Files and folders that it may read, by their full paths."""
    hosts: tuple[str, ...] = ()
    """Hosts that it may reach, as host or host:port; "*" alone: any public one."""


def _server_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,32}", name):
        raise ValueError("the name of a server has letters, digits and hyphens only, 32 at most")
    return name


McpName = Annotated[str, AfterValidator(_server_name)]


class Tools(Section):
    """The tools of the agent."""

    exec: Exec = Exec()
    """Shell commands."""
    bash: BashSettings = BashSettings()
    """The shell on virtual files."""
    web: WebAccess = WebAccess()
    """Reading the web."""
    mcp: Mapping[McpName, McpServer] = Field({}, repr=False)
    """MCP servers by name."""


class BudgetSettings(Section):
    """Limits on the cost of models, after which the agent stops and asks; null: no limit."""

    run_usd: Usd | None = 0.5
    """US dollars for one run; null: no limit."""
    task_usd: Usd | None = 1.0
    """US dollars for one tree of tasks, after which it asks for more; null: no limit."""
    day_usd: Usd | None = 2.0
    """US dollars a day; null: no limit."""
    month_usd: Usd | None = 20.0
    """US dollars a month; null: no limit."""
    day_tokens: int | None = Field(None, ge=0)
    """Tokens a day of models without a price; null: no limit."""


class Reviews(Section):
    """Questions that tasks in the background ask a person."""

    expire: Duration = timedelta(days=7)
    """How long one waits for an answer; then its task fails."""
    remind: Duration | None = timedelta(days=1)
    """How long until you are shown it again, and after that again; null: never."""


class LimitSettings(Section):
    """Limits on the resources of the process."""

    memory_mb: int | None = Field(None, ge=128)
    """Memory, in MB, above which it sheds load; null: half of what the machine or container has."""
    file_mb: int = Field(50, ge=1, le=2_000)
    """The largest accepted file, in megabytes."""
    member_mb: int | None = Field(500, ge=1)
    """Space, in MB, for the files of a member or a group; null: no limit."""


class Logs(Section):
    """The log files."""

    keep: Duration | None = None
    """How long to keep log files; null: forever."""


class Retention(Section):
    """How long what is over is kept. Messages, memories, files and the audit trail are never cleared away."""

    keep: Duration | None = Field(timedelta(days=90), ge=timedelta(days=32))
    """How long to keep tasks that have ended, with their steps, triggers and deliveries; null: forever."""
    thinking: Duration | None = timedelta(days=30)
    """How long to keep what models thought before their answers; null: forever."""


class WebSettings(Section):
    """Where the page and the APIs listen; a change needs a restart."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on (`SUPACLAW_HOST`); needs a restart."""
    port: int = Field(8787, ge=0, le=65_535)
    """Port to listen on (`SUPACLAW_PORT`); needs a restart."""
    public_url: PublicUrl | None = None
    """Address of a reverse proxy in front (`SUPACLAW_PUBLIC_URL`); null: none; needs a restart."""
    proxies: Networks = ()
    """Networks of a proxy on other machines, such as "10.0.0.0/8"; needs a restart."""
    allowed_hosts: tuple[HostName, ...] = ()
    """More names that programs reach it by, such as "host.docker.internal"; without port."""


class DatabaseSettings(Section):
    """Where Postgres is; a change needs a restart."""

    url: SecretStr | None = None
    """DSN of a Postgres 15+ (`SUPACLAW_DATABASE_URL`); null: the embedded one; needs a restart."""
    secrets: Literal["own", "supabase_vault"] = "own"
    """Where new secrets are kept: under the master key, or in Supabase Vault; needs a restart."""

    @property
    def in_supabase_vault(self) -> bool:
        """Whether new secrets are kept there."""
        return self.secrets == "supabase_vault"


def _bucket(text: str) -> str:
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9._-]{2,62}(/[A-Za-z0-9._-]+)*/?", text):
        raise ValueError('must be a bucket, and a prefix if you like: "s3://bucket/prefix"')
    return text.rstrip("/")


class StoreSettings(Section):
    """An object store that speaks S3."""

    endpoint: HttpUrl | None = None
    """Address of the S3 protocol there; null: Amazon's."""
    region: str = Field("us-east-1", pattern=r"^[a-z0-9-]+$")
    """Region of the bucket."""
    access_key: SecretStr | None = None
    """Id of the access key."""
    secret_key: SecretStr | None = None
    """The access key itself."""


class WorkspaceStore(StoreSettings):
    """An object store that keeps the workspace the same on several machines."""

    url: Annotated[str, AfterValidator(_bucket)] | None = None
    """A bucket, with a prefix if you like: "s3://bucket/prefix"; null: the local folder only."""
    every: Duration = timedelta(seconds=30)
    """Time between two looks for changes."""


class BackupSettings(StoreSettings):
    """Backups that the gateway makes by itself, without secrets."""

    every: Duration | None = None
    """Time between two backups; null: none."""
    to: Annotated[str, AfterValidator(lambda to: _bucket(to) if "://" in to else to)] | None = None
    """A folder of another machine, or a bucket, where they are encrypted: "s3://bucket/prefix"; null: none."""
    keep: int = Field(14, ge=1)
    """How many of them to keep there."""


class VoiceSettings(Section):
    """Answers that are also read aloud."""

    reply: VoiceReply = "off"
    """When an answer is also a voice message: "off", "voice" for recordings only, or "always"."""
    model: str | None = None
    """The model that reads aloud, such as `openai/gpt-4o-mini-tts`."""
    name: str = Field("alloy", min_length=1)
    """The voice, as its provider calls it."""

    @model_validator(mode="after")
    def _has_model(self) -> Self:
        if self.reply != "off" and self.model is None:
            raise ValueError('reply needs a model, such as "openai/gpt-4o-mini-tts"; name one in voice.model')
        return self


HookKind = Literal["answer.sent", "task.ended", "review.asked", "budget.reached"]


class HookSettings(Section):
    """A program that is told what happens, by signed Standard Webhooks."""

    url: HttpUrl
    """Where to post; in a private network `net.private_allow` must name it, too."""
    secret: SecretStr = Field(min_length=8)
    """The key of the signatures: "whsec_" and base64."""
    events: tuple[HookKind, ...] = get_args(HookKind)
    """The events that it is told."""
    content: bool = False
    """Whether it gets the words too, not only ids and numbers."""


class UpdateSettings(Section):
    """Newer versions."""

    check: bool = False
    """Whether `supaclaw doctor` and Health look for a newer version."""


class Config(Section):
    """The whole of config.json."""

    owner: Owner = Owner()
    """The agent's owner."""
    models: ModelSettings = ModelSettings()
    """Which models answer."""
    channels: Mapping[str, JsonSection] = Field({}, repr=False)
    """Messengers by name, each with its own settings."""
    voice: VoiceSettings = VoiceSettings()
    """Answers that are also read aloud."""
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    """Periodic checks by the agent."""
    compaction: Compaction = Compaction()
    """When a long conversation is summarised."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """Checkpoints of the workspace."""
    backup: BackupSettings = BackupSettings()
    """Backups that the gateway makes by itself."""
    workspace: WorkspaceStore = WorkspaceStore()
    """The workspace on several machines."""
    tools: Tools = Tools()
    """The tools of the agent."""
    hooks: Mapping[str, HookSettings] = {}
    """Programs that are told what happens, by name."""
    triggers: Mapping[SourceName, SignedSource] = {}
    """Programs that sign their triggers, by name."""
    net: Net = Net()
    """Hosts in private networks that may be reached."""
    budgets: BudgetSettings = BudgetSettings()
    """Limits on the cost of models."""
    reviews: Reviews = Reviews()
    """Questions that tasks ask a person."""
    limits: LimitSettings = LimitSettings()
    """Limits on the resources of the process."""
    logs: Logs = Logs()
    """The log files."""
    retention: Retention = Retention()
    """How long what is over is kept."""
    update: UpdateSettings = UpdateSettings()
    """Newer versions."""
    web: WebSettings = WebSettings()
    """Where the page and the APIs listen."""
    database: DatabaseSettings = DatabaseSettings()
    """Where Postgres is."""


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
