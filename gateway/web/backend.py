"""The parts of the gateway that the web uses, in groups; the composition root fills them in."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gateway.agent.limits import Limits
from gateway.agent.skills.library import Skills
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.agent.toolbox import Toolbox
from gateway.agent.work.agents import Agents
from gateway.config.editing.editor import ConfigEditor
from gateway.domain.channels.channel import LoginChannel, WebhookChannel
from gateway.domain.conversation.tools import Wording
from gateway.domain.health import Finding, HeartbeatResult, JobState, Vitals
from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import Embedders
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
from gateway.flow.signals import Signals
from gateway.flow.trees.control import TraceFollowers, TreeControl
from gateway.flow.unattended.triggers import Triggers
from gateway.llm.client import Description
from gateway.logs import SecretMask
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery.addresses import AddressRow
from gateway.store.work.steps import ModelUse
from gateway.web.http.headers import Proxies, page_url
from gateway.web.links import LoginLinks, SecretLinks
from gateway.workspace.files.tree import Workspace


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
    """Why this gateway leaves the work to a newer version; None if it doesn't."""
    unsettled: Sequence[str] = ()
    """Problems with the owner's own ids on the messengers, in words."""
    undelivered: Mapping[str, str] = field(default_factory=dict)
    """Undelivered messages, by channel, in words."""
    embedding: str = ""
    """The progress of memory's vectors, or why there are none."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """The instances on the database, and what each holds, in words."""
    database_problem: str | None = None
    """Why the database is not working; then the queue and costs are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccess:
    """Access to the page, and its addresses."""

    local_token: str = field(repr=False)
    """The token of programs on this machine, which may do everything."""
    page_name: str
    """The page's own host name on this machine."""
    public_url: str | None
    """The public address of a reverse proxy, as browsers see it."""
    proxies: Proxies = ()
    """Where that proxy is, if not on this machine."""
    first_code: str = field(default="", repr=False)
    """Signs a browser in, once; empty: there is none."""
    allowed_hosts: Callable[[], Collection[str]]
    """Further host names of this gateway."""
    lets_in: Callable[[Connection, PrincipalId], Awaitable[bool]]
    """Whether a member still has access."""
    links: LoginLinks
    secret_links: SecretLinks
    clock: Clock

    def sign_in_link(self, base: str) -> str:
        """Create a sign-in link to the page, under the public address, or under `base` with the page's own name."""
        return self.links.issue(page_url(self.public_url or base, self.page_name), self.clock.now())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatParts:
    """The parts that accept messages and show answers."""

    inbox: InboundFlow
    answers: Answers
    live: Live
    wordings: Callable[[], Mapping[str, Wording]]
    """The wording by which people see the calls of each of the owner's tools."""
    commands: Mapping[str, str]
    """The summary of each slash command."""
    zones: ZoneOffers
    embedder: Embedders


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """The owner's files."""

    data: Path
    """The gateway's own folder."""
    root: Path
    workspace: Workspace
    uploads: Uploads
    checkpoints: Checkpoints
    unlock: Callable[[PrincipalId, str, str], Awaitable[str]]
    """Reads a person's file by its path and its password, which is kept nowhere; returns what is still not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeParts:
    """The owner's task trees, and the triggers that start them."""

    control: TreeControl
    traces: TraceFollowers
    triggers: Triggers
    agents: Agents


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParts:
    """The owner's tools."""

    skills: Skills
    tool_files: ToolFiles
    toolbox: Callable[[], Awaitable[Toolbox]]
    """The owner's toolbox, after looking for new tools at its sources."""
    names: Callable[[], Collection[str]]
    switched_off: Callable[[], Mapping[str, str]]
    """The disabled tools, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelParts:
    """The configured channels, and the people on them."""

    states: Callable[[], Mapping[str, str]]
    """The state of each channel in words."""
    webhooks: Callable[[], Mapping[str, WebhookChannel]]
    logins: Callable[[], Mapping[str, LoginChannel]]
    """The channels that people sign in to here."""
    probes: ChannelProbes
    deep_link: Callable[[str, str], str]
    """A channel's address with a code in it; empty if the channel has no such address."""
    setup: Setup | None
    """Connects models and messengers; None hides the setup."""
    pairing: Pairing
    unsettled: Callable[[], Sequence[str]]
    """Problems with the owner's own ids, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingParts:
    """The configuration, and the secrets that it names."""

    editor: ConfigEditor
    secrets: LiveSecrets
    variable_of: Callable[[str], str | None]
    """The environment variable that sets a key of config.json."""
    model: Callable[[], Description | None]
    chosen_model: Callable[[AddressRow, bool], str | None]
    """The model chosen for a chat, of the owner or not, while that choice counts."""
    limits: Callable[[], Limits]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthParts:
    """The health of the gateway."""

    status: Callable[[], Awaitable[StatusReport]]
    healthy: Callable[[], bool]
    waits_for_database: Callable[[], bool]
    findings: Callable[[], Sequence[tuple[str, Finding]]]
    """Runs the checks of `supaclaw doctor`; blocks."""
    update: Callable[[], object]
    """Starts `supaclaw update`; raises `OwnerMustAct`."""
    restart: Callable[[], object]
    """Stops the gateway and starts it again."""
    logs: Path
    """The folder of the logs."""
    mask: SecretMask
    jobs: Callable[[], Mapping[str, JobState]]
    """The gateway's own jobs, by their names."""
    beat: Callable[[], Awaitable[HeartbeatResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The parts of a running gateway that the web uses."""

    database: Database
    owner: Principal
    clock: Clock
    signals: Signals
    access: PageAccess
    chat: ChatParts
    files: FileParts
    trees: TreeParts
    tools: ToolParts
    channels: ChannelParts
    settings: SettingParts
    health: HealthParts
