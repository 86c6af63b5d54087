"""Everything the web uses of the gateway; the composition root fills this in."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gateway.agent.limits import Limits
from gateway.agent.skills.library import Skills
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.agent.toolbox import Toolbox
from gateway.config.editing.editor import ConfigEditor
from gateway.domain.channels.channel import LoginChannel, WebhookChannel
from gateway.domain.conversation.tools import Wording
from gateway.domain.health import Finding, HeartbeatResult, Vitals
from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import Embedders, no_embedder
from gateway.domain.principals import Principal
from gateway.domain.time import Clock
from gateway.flow.channels.supervisor import ChannelProbes
from gateway.flow.files.checkpoints import Checkpoints
from gateway.flow.files.uploads import Uploads
from gateway.flow.inbound.acceptance import InboundFlow
from gateway.flow.inbound.answers import Answers
from gateway.flow.inbound.zone import ZoneOffers
from gateway.flow.live import Live
from gateway.flow.people import Pairing
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.setup import Setup
from gateway.flow.trees.control import TraceFollowers, TreeControl
from gateway.flow.unattended.triggers import Triggers
from gateway.llm.client import Description
from gateway.logs import SecretMask
from gateway.store.connection.pool import Connection, Database
from gateway.store.work.steps import ModelUse
from gateway.web.http.headers import page_url
from gateway.web.links import LoginLinks, SecretLinks
from gateway.workspace.files.tree import Workspace


async def _nobody(_conn: Connection, _principal: PrincipalId) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The gateway's status; `queue` counts live tasks by status, `channels` describes the state of each in words."""

    version: str
    started_at: datetime
    model: str
    queue: Mapping[str, int]
    channels: Mapping[str, str]
    today: ModelUse
    vitals: Vitals = field(default_factory=Vitals)
    outdated: str | None = None
    """Why it leaves the work to a newer version; None if it doesn't."""
    unsettled: Sequence[str] = ()
    """Problems with the owner's own ids on the messengers, in words."""
    undelivered: Mapping[str, str] = field(default_factory=dict)
    """Undelivered messages, by channel, in words."""
    embedding: str = ""
    """The progress of memory's vectors, or why there are none."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """The instances on the database, and what each holds, in words."""
    database_problem: str | None = None
    """Why the database does not let it work; queue and costs are then not known."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The parts of a running gateway that the web uses.

    `local_token` is the admin credential for programs on this machine; `page_name` is the page's host name on it.
    `public_url` is the address of a reverse proxy in front, as browsers see it. `models` are agent names; `commands`
    maps a slash command to its summary. `lets_in` says whether a member still has access.
    `on_shed` registers a callback that frees caches when memory runs low,
    `on_people_changed` one for when people's rights change.
    `files` is the owner's file root, `workspace` gives access to it, `checkpoints` has its earlier versions.
    `channels` describes the state of each configured channel in words; `logins` are those to log in to.
    `variable_of` names the environment variable that sets a key of config.json.
    `tools` are the names of the owner's agent's tools, `wordings` put calls of them into words.
    `allowed_hosts` are further names of this gateway.
    `settings` changes config.json, `probes` tries credentials, `zones` offers
    time zones. `jobs` says when each is due. `findings` runs the
    checks of `supaclaw doctor`, and blocks. `logs` is the logs' folder, `mask` hides secrets.
    `model` is the answering one, `setup` connects models and messengers, `deep_link` makes an address with a code.
    `unsettled` are problems with the owner's own ids. `skills`, `tool_files` and `toolbox` are
    the owner's, the last with what is new at its sources; `tools_off` are its tools that are off, each with the reason.
    """

    database: Database
    inbox: InboundFlow
    answers: Answers
    live: Live
    owner: Principal
    local_token: str = field(repr=False)
    page_name: str
    webhooks: Callable[[], Mapping[str, WebhookChannel]]
    status: Callable[[], Awaitable[StatusReport]]
    healthy: Callable[[], bool]
    waits_for_database: Callable[[], bool]
    clock: Clock
    uploads: Uploads
    files: Path
    workspace: Workspace
    checkpoints: Checkpoints
    pairing: Pairing
    beat: Callable[[], Awaitable[HeartbeatResult]]
    triggers: Triggers
    trees: TreeControl
    traces: TraceFollowers
    settings: ConfigEditor
    probes: ChannelProbes
    skills: Skills
    tool_files: ToolFiles
    toolbox: Callable[[], Awaitable[Toolbox]]
    zones: ZoneOffers
    embedder: Embedders = no_embedder
    tools: Callable[[], Collection[str]] = tuple
    tools_off: Callable[[], Mapping[str, str]] = dict
    wordings: Callable[[], Mapping[str, Wording]] = dict
    allowed_hosts: Callable[[], Collection[str]] = tuple
    models: Callable[[], Sequence[str]] = lambda: ("default",)
    lets_in: Callable[[Connection, PrincipalId], Awaitable[bool]] = _nobody
    commands: Mapping[str, str] = field(default_factory=dict)
    public_url: str | None = None
    on_shed: Callable[[Callable[[], None]], None] = lambda _drop: None
    on_people_changed: Callable[[Callable[[], None]], None] = lambda _look: None
    channels: Callable[[], Mapping[str, str]] = dict
    unsettled: Callable[[], Sequence[str]] = tuple
    logins: Callable[[], Mapping[str, LoginChannel]] = dict
    jobs: Callable[[], Mapping[str, datetime | None]] = dict
    variable_of: Callable[[str], str | None] = lambda _key: None
    model: Callable[[], Description | None] = lambda: None
    setup: Setup | None = None
    deep_link: Callable[[str, str], str] = lambda _channel, _code: ""
    links: LoginLinks = field(default_factory=LoginLinks)
    limits: Callable[[], Limits] = Limits
    findings: Callable[[], Sequence[tuple[str, Finding]]] = tuple
    logs: Path = Path("logs")
    mask: SecretMask = field(default_factory=SecretMask)
    secrets: LiveSecrets | None = None
    secret_links: SecretLinks = field(default_factory=SecretLinks)

    def sign_in_link(self, base: str) -> str:
        """A new sign-in link to the page, under the public address, or under `base` with the page's own name."""
        return self.links.issue(page_url(self.public_url or base, self.page_name), self.clock.now())
