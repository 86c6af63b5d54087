"""The parts of a gateway, wired: the only place that builds them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial

from gateway import commands, tools
from gateway.agent.mcp.servers import LocalServers, McpServers
from gateway.agent.skills.library import Skills
from gateway.agent.skills.sources import guarded
from gateway.agent.tool_files.calls import AccessTokens, DeclaredTools
from gateway.agent.tool_files.confirmed import FORM as TOOL_FILES
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.agent.work.task_trees import Trees
from gateway.app.condition import LOG_PRUNING, Condition
from gateway.app.live_config import Embedders, LiveConfig
from gateway.background import jobs
from gateway.background.budgets import PaidEmbedding
from gateway.background.cpu.executor import Cpu, run_alone
from gateway.background.cpu.extraction import WebPages
from gateway.background.cpu.virtual_shells import VirtualShells
from gateway.background.upkeep.heartbeat import Halt, Heartbeat
from gateway.background.upkeep.memory_index import FilePassages, Indexing
from gateway.background.upkeep.schedules import CONSOLIDATION_INTERVAL, Consolidation, Scheduler
from gateway.background.upkeep.timers import Interval, JobTable
from gateway.background.worker import Runner, Worker, Workplace
from gateway.commands import Command
from gateway.config.channels import enabled_channels
from gateway.config.data.instance import StartHistory
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.domain.health import Vitals
from gateway.domain.ids import InstanceId, MessageId, PrincipalId
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.time import Clock
from gateway.domain.work.tasks import Lane
from gateway.flow.approvals.questions import Questions
from gateway.flow.channels.leases import ChannelLeases
from gateway.flow.channels.supervisor import ChannelSupervisor
from gateway.flow.files.sync import FileSync
from gateway.flow.files.uploads import Uploads
from gateway.flow.inbound.acceptance import InboundFlow
from gateway.flow.inbound.commands import CommandRunner
from gateway.flow.inbound.gate import Gate
from gateway.flow.inbound.spool import Outages
from gateway.flow.inbound.zone import ZoneOffers
from gateway.flow.journal.journal import Journal
from gateway.flow.live import Live
from gateway.flow.outbound.proactive import Notices, ProactiveMessages
from gateway.flow.outbound.send_tool import SendTool
from gateway.flow.outbound.sender import Outbound
from gateway.flow.people import People
from gateway.flow.secrets.guard import LeakGuard
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.trees.control import TraceFollowers, TreeControl
from gateway.flow.turn.budgets import SharedBudgets
from gateway.flow.turn.compaction import Compactor
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.turn.runner import RunFinisher, TurnRunner
from gateway.flow.unattended.schedule_results import DeliveryFollowUp
from gateway.logs import SecretMask
from gateway.net.addresses import Rules
from gateway.net.mcp.connections import Connections
from gateway.net.search.asking import WebSearcher
from gateway.sandbox.remote.client import open_workshop
from gateway.sandbox.virtual import shell
from gateway.sandbox.workshop import Workshop
from gateway.store.connection.pool import Database
from gateway.store.work import schedule_runs
from gateway.tools import Family
from gateway.web.links import LoginLinks, SecretLinks
from gateway.workspace.files.search import search_files
from gateway.workspace.files.tree import Workspace

SEARCH_SECONDS = 20.0
SCHEDULES, SECRETS, FILES = "schedules", "secrets", "files"
WORKERS_JOBS = (SECRETS, FILES, "embed", LOG_PRUNING)
LOOK_FOR_SECRETS = timedelta(minutes=1)
"""A changed one is also told of at once, unless a notification got lost."""


@dataclass
class Parts:
    """Everything a running gateway is made of, each built once, when it is first asked for.

    The fields are what is there before; a part that needs another one only later is given a function.
    """

    environment: Environment
    current: LiveConfig
    database: Database
    people: People
    instance: InstanceId
    failpoints: Failpoints
    starts: StartHistory
    stop: asyncio.Event
    clock: Clock
    secrets: LiveSecrets
    mask: SecretMask
    workplace: Workplace

    # What every part may use

    @cached_property
    def live(self) -> Live:
        """What is happening, for those who look on."""
        return Live()

    @cached_property
    def traces(self) -> TraceFollowers:
        """What tasks do, for those who follow one, in whichever process it runs."""
        return TraceFollowers(self.database, self.instance)

    @cached_property
    def tree_control(self) -> TreeControl:
        """What programs and screens do with the owner's trees."""
        known = Trees(self.environments.agents, lambda: self.current.config.budgets.task_usd)
        return TreeControl(self.database, self.people.owner.id, known, self.worker.wake, self.worker.cancel)

    @cached_property
    def guard(self) -> LeakGuard:
        """Keeps live secrets out of texts."""
        return LeakGuard(self.mask.leaks)

    @cached_property
    def environments(self) -> AgentEnvironments:
        """Each principal's workspace and tools."""
        return AgentEnvironments(
            self.database,
            self.people,
            self.environment.workspace,
            self.environment.data / "principals",
            self.families,
            SendTool(self.database, self.outbound, self.proactive),
            self.clock,
            owner_zone=lambda: self.current.config.owner.timezone,
            member_mb=lambda: self.current.config.limits.member_mb,
            questions=self.questions,
            embedder=self.embedders.embedder,
            unverified=self.journal.check.holds,
            instance=self.instance,
            clean=self.guard.at("tools"),
            leaks=self.mask.leaks,
            web=self.web,
            workshop=self.jail,
            exec_mode=lambda: self.current.config.tools.exec.mode,
            fetch=guarded(self.web.rules),
            tampered=self.notices.tampered,
            tell_owner=self.notices.tell_owner,
            task_usd=lambda: self.current.config.budgets.task_usd,
            keep=self._keep_files,
            find=partial(run_alone, search_files, seconds=SEARCH_SECONDS),
            bash=self.bash,
            sources=[self._mcp_servers, self._declared_tools],
            tool_files=self.tool_files,
        )

    async def _keep_files(self, reason: str) -> Json:
        return await self.condition.checkpoints.keep(reason)  # which is built of what needs this

    def _mcp_servers(self, principal: PrincipalId, owner: bool, workspace: Workspace) -> McpServers:
        async def save(path: str, data: bytes) -> str:
            return (await workspace.write(path, data, Label.UNTRUSTED)).path

        return McpServers(
            principal,
            owner,
            lambda: {**self.tool_files.servers, **self.current.config.tools.mcp},
            self.database,
            self.mcp_connections,
            self.secrets,
            save,
            LocalServers(self.jail, self.environment.data, self.mcp_connections.rules),
        )

    @cached_property
    def tool_files(self) -> ToolFiles:
        """The tools that files of the owner's workspace declare."""
        workspace, fetch = Workspace(self.environment.workspace), guarded(self.web.rules)
        return ToolFiles(Skills(self.database, workspace, self.clock, fetch, TOOL_FILES))

    @cached_property
    def _access_tokens(self) -> AccessTokens:
        return AccessTokens(self.secrets, self.web.rules, self.clock)

    def _declared_tools(self, principal: PrincipalId, owner: bool, _workspace: Workspace) -> DeclaredTools:
        return DeclaredTools(principal, owner, self.tool_files, self._access_tokens, self.environments.commands)

    @cached_property
    def mcp_connections(self) -> Connections:
        """Open connections to MCP servers, wherever the operator's addresses lead."""
        return Connections(lambda: Rules.of(self.current.config.net.private_allow))

    @cached_property
    def zones(self) -> ZoneOffers:
        """Offers people their time zone."""
        return ZoneOffers(self.database, self.environments, self.proactive)

    @cached_property
    def web(self) -> tools.Web:
        """How the agent reaches the web, by the configuration as it is at each request."""

        def rules(*, pages: bool = True) -> Rules:
            web = self.current.config.tools.web
            hosts = (web.allow_hosts, web.deny_hosts) if pages else ()
            return Rules.of(self.current.config.net.private_allow, *hosts)

        search = WebSearcher(lambda: self.current.config.tools.web.search, lambda: rules(pages=False))
        return tools.Web(rules, search, WebPages(self.cpu, self.environment.data / "web-pages").read)

    @cached_property
    def questions(self) -> Questions:
        """Asks people before anything lasts."""
        return Questions(
            self.database,
            self.people,
            self.proactive,
            self.clock,
            self._wake_worker,
            lasts=lambda: self.current.config.reviews.expire,
            remind=lambda: self.current.config.reviews.remind,
        )

    def _wake_worker(self) -> None:
        self.worker.wake()  # which asks for what is built here

    @cached_property
    def families(self) -> Sequence[Family]:
        """The agent's tools."""
        return tools.discover()

    @cached_property
    def uploads(self) -> Uploads:
        """Where files are kept."""
        return Uploads(self.database, self.environments, self.clock, self.current.longest_file)

    @cached_property
    def journal(self) -> Journal:
        """The readable copy of every conversation."""
        journal = Journal(self.database, self.people, self.environment.workspace, self.environment.data, self.clock)
        if self.workplace.kind == "gateway":  # two that write one file would spoil it for each other
            self.live.listen(journal.changed)
        return journal

    @cached_property
    def outages(self) -> Outages:
        """Whom to tell that the database was away."""
        return Outages(self._takes_messages, self.outbound, self.clock)

    @cached_property
    def cpu(self) -> Cpu:
        """The process for heavy work."""
        return Cpu()

    @cached_property
    def jail(self) -> Workshop:
        """Where programs run."""
        return open_workshop(self.environment.state / "scratch", self.environment.workshop)

    @cached_property
    def shells(self) -> VirtualShells:
        """The shells on virtual files."""
        return VirtualShells(self.environment.state / "shells")

    @cached_property
    def bash(self) -> tools.Bash | None:
        """The agent's way to them, where this kernel can confine them."""

        def allow_urls() -> Sequence[str]:
            return [str(url) for url in self.current.config.tools.bash.allow_urls]

        return tools.Bash(self.shells.run, allow_urls) if shell.is_supported() else None

    @cached_property
    def embedders(self) -> Embedders:
        """What turns texts into vectors."""
        return Embedders(self.current, self.clock, self.guard.at("embedding"))

    # The way in

    @cached_property
    def gate(self) -> Gate:
        """What arrives at a channel comes here first."""
        inbound, notices, offer = self.inbound.accept, self.notices, self.zones.offer
        return Gate(self.database, self.people, inbound, notices, self.outbound, self.live, offer)

    @cached_property
    def inbound(self) -> InboundFlow:
        """Stores what was said, and sets to work who answers it."""
        return InboundFlow(
            self.database,
            self.people,
            self.commands.keys(),
            self.command_runner.run,
            self.worker.wake,
            self.live,
            self.instance,
            self.failpoints,
            self.journal,
            self.outages,
            self.notices,
            self.clock,
            self.guard.at("inbound"),
        )

    @cached_property
    def commands(self) -> Mapping[str, Command]:
        """Slash commands by name."""
        return commands.discover()

    @cached_property
    def command_runner(self) -> CommandRunner:
        """Runs commands."""
        return CommandRunner(
            self.database,
            self.commands,
            self.current.describe,
            self.outbound,
            self.worker.cancel,
            self.instance,
            self.live,
            self.clock,
            self.failpoints,
            vitals=self.vitals,
            limits=self.current.limits,
            admit=lambda: self.people.refresh(self.database),
            sign_in_link=self.sign_in_link,
            secret_link=self.secret_link,
            note_zone=self.zones.note,
            processes=lambda: self.environments.processes,
        )

    @cached_property
    def links(self) -> LoginLinks:
        """Sign-in links to the page."""
        return LoginLinks()

    @cached_property
    def secret_links(self) -> SecretLinks:
        """Links to the form for a secret."""
        return SecretLinks()

    def secret_link(self, principal: PrincipalId, name: str) -> str | None:
        """A link that works elsewhere; None if only this machine's own browser reaches the page."""
        public = self.public_url or ""
        known = public.startswith("https://")
        return self.secret_links.issue(public, principal, name, self.clock.now()) if known else None

    @cached_property
    def public_url(self) -> str | None:
        """The page's address for browsers elsewhere; another one takes a restart."""
        return self.current.config.web.public_url

    def sign_in_link(self) -> str | None:
        """A link that works on a phone; None if only this machine's own browser reaches the page."""
        public = self.public_url or ""
        return self.links.issue(public, self.clock.now()) if public.startswith("https://") else None

    # The way out

    @cached_property
    def outbound(self) -> Outbound:
        """Sends what is committed."""
        return Outbound(
            self.database,
            self.failpoints,
            lambda principal: self.environments.of(principal).workspace.root,
            self._attempted,
            self.guard.at("outbound"),
        )

    @cached_property
    def proactive(self) -> ProactiveMessages:
        """Brings to a person what no chat waits for."""
        return ProactiveMessages(
            self.database, self.outbound, self.live, lambda: enabled_channels(self.current.config.channels)
        )

    @cached_property
    def notices(self) -> Notices:
        """Tells the owner."""
        return Notices(self.people, self.proactive)

    @cached_property
    def channel_manager(self) -> ChannelSupervisor:
        """The channels that are open."""
        return ChannelSupervisor(self.outbound, self.notices.tell_owner, self.channel_leases, self._channel_taken_over)

    @cached_property
    def channel_leases(self) -> ChannelLeases:
        """Which channels are ours."""
        return ChannelLeases(self.database, self.instance)

    def _channel_taken_over(self) -> None:
        self.command_runner.look_again()
        self.follow_up.look_again()
        self.worker.wake()

    # The work

    @cached_property
    def worker(self) -> Worker:
        """Runs tasks."""
        lanes = [Lane.CHAT, Lane.FILES, Lane.AGENTS]
        tell_owner, works = self.notices.tell_owner, self._takes_messages
        tidy, abandoned, able = self._run_ended, schedule_runs.mark_failed, self.workplace.able
        return Worker(self.database, self.instance, self.runners, lanes, tell_owner, works, tidy, abandoned, able)

    async def _run_ended(self) -> None:
        if self.file_sync.on:
            self.file_sync.want()
            self.job_table.wake(FILES)
        await self.environments.drop_plans()

    @cached_property
    def file_sync(self) -> FileSync:
        """Keeps the files the same on all machines that share a store."""
        sync = FileSync(
            self.database,
            self.people,
            self.environments,
            self.environment.data,
            lambda: self.current.config.workspace,
            lambda: Rules.of(self.current.config.net.private_allow),
            lambda: self.workplace.here,
            self.notices.tell_owner,
            self.clock,
            self.failpoints,
        )
        self.workplace.synced = lambda: sync.shared
        return sync

    @cached_property
    def runners(self) -> Mapping[str, Runner]:
        """What runs the tasks of each kind."""
        return jobs.discover(self.services)

    @cached_property
    def services(self) -> jobs.Services:
        """What jobs may use."""
        return jobs.Services(
            self.database,
            self.people,
            self.environments,
            self.file_sync,
            self.uploads,
            self.journal,
            self.outages,
            self.outbound,
            self.proactive,
            self.turn_runner,
            self.finisher,
            self.follow_up,
            self.questions,
            self.live,
            self.cpu,
            self.halt,
            self.clock,
            self.failpoints,
            self.environment.data,
            lambda: self.current.config,
            self.current.limits,
            self.current.summary_model,
            self.current.cheap_model,
            self.current.heartbeat_model,
            self.current.named_model,
            self.current.agent_model,
            self.current.hear,
            self.schedules_changed,
        )

    @cached_property
    def compactor(self) -> Compactor:
        """Shortens long conversations."""
        return Compactor(
            self.database,
            self.current.summary_model,
            lambda: self.current.config.compaction.at_tokens,
            self.live,
            self.failpoints,
        )

    @cached_property
    def turn_runner(self) -> TurnRunner:
        """Runs turns of the agent."""
        return TurnRunner(
            self.database,
            lambda: self.current.model,
            self.current.limits,
            self.environments,
            self.live,
            self.clock,
            self.failpoints,
            self.compactor,
        )

    @cached_property
    def finisher(self) -> RunFinisher:
        """Stores what runs come to."""
        return RunFinisher(self.database, self.outbound, self.proactive, self.live, self.failpoints)

    # The clock, and the state of things

    @cached_property
    def scheduler(self) -> Scheduler:
        """Queues what is due."""
        return Scheduler(self.database, self.clock, self.failpoints, self.worker.wake, self.people.lets_in)

    @cached_property
    def follow_up(self) -> DeliveryFollowUp:
        """Watches how what schedules say is delivered."""
        return DeliveryFollowUp(self.database, self.people, self.proactive)

    @cached_property
    def job_table(self) -> JobTable:
        """What is done when."""
        looks = {
            SCHEDULES: self.scheduler.look,
            "heartbeat": self._look_whether_to_beat,
            "approvals": self.questions.look,
            SECRETS: self._look_for_secrets,
            "embed": self.indexing.look,
            FILES: self._look_for_changed_files,
            "consolidation": Interval(lambda: CONSOLIDATION_INTERVAL, self.consolidation.look, self.clock).look,
            **self.condition.jobs,
        }
        kept = looks if self.workplace.kind == "gateway" else WORKERS_JOBS
        return JobTable({name: looks[name] for name in kept}, self.clock)

    async def _look_whether_to_beat(self) -> datetime | None:
        return await self.heartbeat.look() if self.workplace.here else None

    async def _look_for_changed_files(self) -> datetime | None:
        """A worker beside a gateway leaves that to it."""
        beside = self.workplace.kind == "worker" and self.workplace.here
        return None if beside else await self.file_sync.look()

    async def _look_for_files(self) -> None:
        if self.workplace.here:
            await self._file_passages.look()

    @cached_property
    def _file_passages(self) -> FilePassages:
        def workspace(whose: PrincipalId) -> Workspace:
            return self.environments.of(whose).workspace

        return FilePassages(self.database, workspace, self.clock, self.guard.at("files"))

    async def _look_for_secrets(self) -> datetime:
        await self.secrets.look()
        return self.clock.now() + LOOK_FOR_SECRETS

    @cached_property
    def indexing(self) -> Indexing:
        """Brings into memory what is new."""
        return Indexing(
            self.database,
            self.embedders.embedder,
            self._look_for_files,
            PaidEmbedding(self.database, lambda: self.people.owner.id, self.clock).allowed,
            self.clock,
            self.failpoints,
        )

    @cached_property
    def consolidation(self) -> Consolidation:
        """Has memories tidied once a day."""
        return Consolidation(self.database, self.worker.wake)

    @cached_property
    def halt(self) -> Halt:
        """Whether the heartbeat has stopped."""
        return Halt(lambda: self.current.config.models)

    @cached_property
    def heartbeat(self) -> Heartbeat:
        """Looks now and then whether there is something to say."""
        return Heartbeat(
            self.database,
            self.people,
            self.environments,
            lambda: self.current.config,
            self.current.heartbeat_model,
            SharedBudgets(self.database, self.current.limits, self.clock),
            self.halt,
            self.notices.tell_owner,
            self.worker.wake,
            self.clock,
        )

    @cached_property
    def condition(self) -> Condition:
        """Keeps an eye on all of it."""
        condition = Condition(
            self.environment,
            lambda: self.current.config,
            self.database,
            self.instance,
            self.channel_manager,
            self.worker,
            self.notices,
            self.starts,
            self.stop,
            self.clock,
        )
        condition.health.held = lambda: self.channel_leases.held
        condition.shed.extend([self.inbound.forget, self.environments.forget])
        return condition

    def vitals(self) -> Vitals:
        """How the gateway is."""
        files = self.environments.reading or (self.file_sync.state if self.file_sync.on else None)
        return replace(self.condition.vitals(), files=files, heartbeat=self.heartbeat.state, jobs=self.job_table.dates)

    async def _takes_messages(self) -> bool:
        return await self.inbound.rehearsal.succeeds()

    def _attempted(self, message: MessageId) -> None:
        self.follow_up.attempted(message)

    def schedules_changed(self) -> None:
        """When a slot is due may have changed."""
        self.job_table.wake(SCHEDULES)
