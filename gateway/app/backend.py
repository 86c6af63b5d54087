"""Builds the backend of the web from the parts of a running gateway."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from importlib.metadata import version

from gateway.agent.toolbox import Toolbox
from gateway.app.assembly import Parts
from gateway.app.installation import start_update
from gateway.app.local import page_name
from gateway.app.parts.core import Core
from gateway.app.parts.turns import Turns
from gateway.app.parts.way_in import WayIn
from gateway.app.parts.way_out import WayOut
from gateway.background.cpu.executor import run_alone
from gateway.background.cpu.extraction import LockedFiles
from gateway.background.upkeep.telemetry import Collector, Metrics
from gateway.background.upkeep.timers import Loops, Periodic
from gateway.config.editing.editor import ConfigEditor
from gateway.config.load import variable_of
from gateway.config.watch import ConfigWatch
from gateway.domain.channels.channel import Channel, DeepLinkChannel, LoginChannel, NoFacts, WebhookChannel
from gateway.domain.errors import ConfigError, DatabaseDown, required
from gateway.domain.health import Finding
from gateway.flow.channels.supervisor import ChannelProbes, ChannelSpec, channel_specs
from gateway.flow.files.checkpoints import Checkpoints
from gateway.flow.inbound.answers import Answers
from gateway.flow.people import Pairing
from gateway.flow.setup import Setup
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.unattended.triggers import Triggers
from gateway.store.connection.pool import Connection
from gateway.store.delivery import outbox
from gateway.store.memory import vectors
from gateway.store.migrate import outdated
from gateway.store.work import instances, steps, tasks
from gateway.store.work.steps import ModelUse
from gateway.web.backend import (
    Backend,
    ChannelParts,
    ChatParts,
    FileParts,
    HealthParts,
    PageAccess,
    SettingParts,
    StatusReport,
    ToolParts,
    TreeParts,
)
from gateway.web.gauges import read_gauges
from gateway.web.http.headers import page_url


def build_backend(parts: Parts, way_in: WayIn, local_token: str, watch: ConfigWatch) -> Backend:
    """Build the backend. This module imports the web, so import it when the gateway is ready."""
    core, channels = parts.core, ChannelDirectory(parts.core, parts.way_out)
    return Backend(
        database=core.database,
        owner=core.people.owner,
        clock=core.clock,
        signals=core.signals,
        access=_access(core, way_in, local_token),
        chat=_chat(parts, way_in),
        files=_files(parts),
        trees=_trees(parts),
        tools=_tools(parts.turns),
        channels=_channels(core, channels),
        settings=_settings(core, watch),
        health=_health(parts, channels),
    )


def export_metrics(backend: Backend) -> Loops:
    """The loop that sends the gauges to an OpenTelemetry collector; none if none is configured."""
    if (collector := Collector.read(os.environ, "metrics")) is None:
        return {}
    metrics = Metrics(collector, lambda: read_gauges(backend.health, backend.clock.now()), backend.clock)
    milliseconds = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    every = max(int(milliseconds) / 1_000, 1.0) if milliseconds.isdecimal() else 60.0
    return {"metrics": Periodic("metrics", every, metrics.look).run}


def _access(core: Core, way_in: WayIn, local_token: str) -> PageAccess:
    page, links = page_name(core.environment.data), way_in.page_links
    return PageAccess(
        local_token=local_token,
        page_name=page,
        public_url=links.public_url and page_url(links.public_url, page),
        proxies=core.current.config.web.proxies,
        first_code=core.environment.first_code,
        allowed_hosts=lambda: core.current.config.web.allowed_hosts,
        lets_in=core.people.lets_in,
        links=links.logins,
        secret_links=links.secrets,
        clock=core.clock,
    )


def _chat(parts: Parts, way_in: WayIn) -> ChatParts:
    return ChatParts(
        inbox=way_in.inbound,
        answers=Answers(parts.core.database, parts.core.live),
        live=parts.core.live,
        wordings=lambda: _own_toolbox(parts.turns.environments).wordings,
        commands={command.name: command.summary for command in way_in.commands.values()},
        zones=way_in.zones,
        embedder=parts.records.embedders.embedder,
    )


def _files(parts: Parts) -> FileParts:
    environment, records = parts.core.environment, parts.records
    scratch = parts.work.parts.files.extraction.scratch
    return FileParts(
        data=environment.data,
        root=environment.workspace,
        workspace=records.workspaces.own,
        uploads=records.uploads,
        checkpoints=Checkpoints(environment.workspace, environment.data, partial(run_alone, seconds=600.0)),
        unlock=LockedFiles(parts.core.database, records.workspaces.of, records.cpu, scratch).unlock,
    )


def _trees(parts: Parts) -> TreeParts:
    core, channels = parts.core, parts.way_out.channels
    workspace = parts.records.workspaces.own
    states, signed = lambda: channels.states, lambda: core.current.config.triggers
    triggers = Triggers(core.database, core.people.owner.id, workspace, states, core.signals, core.clock, signed)
    return TreeParts(
        control=parts.work.trees, traces=parts.work.traces, triggers=triggers, agents=parts.turns.own.agents
    )


def _tools(turns: Turns) -> ToolParts:
    return ToolParts(
        skills=turns.own.skills,
        tool_files=turns.own.tool_files,
        toolbox=partial(refreshed_toolbox, turns.environments),
        names=lambda: _own_toolbox(turns.environments).names,
        switched_off=turns.environments.switched_off,
    )


def _channels(core: Core, channels: "ChannelDirectory") -> ChannelParts:
    return ChannelParts(
        states=channels.states,
        webhooks=channels.webhooks,
        logins=channels.logins,
        probes=ChannelProbes(channels.spec, core.clock),
        deep_link=channels.deep_link,
        setup=Setup(
            core.environment,
            os.environ,
            core.clock,
            lambda: core.current.config,
            core.mask.add,
            core.secrets.lookup,
        ),
        pairing=Pairing(core.database, partial(_access_decided, core)),
        unsettled=channels.unsettled,
    )


def _settings(core: Core, watch: ConfigWatch) -> SettingParts:
    return SettingParts(
        editor=ConfigEditor(core.environment, os.environ, watch),
        secrets=core.secrets,
        variable_of=lambda key: variable_of(key, os.environ),
        model=core.current.describe,
        chosen_model=core.current.chosen_model,
        limits=core.current.limits,
    )


def _health(parts: Parts, channels: "ChannelDirectory") -> HealthParts:
    core, upkeep = parts.core, parts.upkeep
    return HealthParts(
        status=partial(_status, parts, core.clock.now(), channels.unsettled),
        healthy=lambda: upkeep.health.healthy,
        waits_for_database=lambda: bool(upkeep.health.database_problem),
        findings=partial(_findings, core),
        update=partial(start_update, core.environment.data),
        restart=upkeep.health.stop.restart,
        logs=core.environment.data / "logs",
        mask=core.mask,
        jobs=lambda: upkeep.job_table.jobs,
        beat=upkeep.heartbeat.beat,
    )


def _own_toolbox(environments: AgentEnvironments) -> Toolbox:
    return environments.of(environments.engine.people.owner.id).toolbox


async def _access_decided(core: Core) -> None:
    await core.people.refresh(core.database)
    core.signals.outbox.set()


async def refreshed_toolbox(environments: AgentEnvironments) -> Toolbox:
    """The owner's toolbox, after looking for new tools at its sources."""
    await environments.refresh()
    toolbox = _own_toolbox(environments)
    await toolbox.refresh()
    return toolbox


def _findings(core: Core) -> Sequence[tuple[str, Finding]]:
    from gateway.app.checks import load_context, run_checks  # only when somebody looks

    return list(run_checks(load_context(core.environment, os.environ, live=False, secrets=core.secrets.lookup)))


@dataclass(frozen=True, slots=True)
class ChannelDirectory:
    """The configured channels, as the web sees them."""

    core: Core
    way_out: WayOut

    @property
    def _open(self) -> Mapping[str, Channel]:
        return self.way_out.channels.channels

    def states(self) -> dict[str, str]:
        """The state of each configured channel in words."""
        return dict.fromkeys(self.core.current.config.channels, "disabled") | dict(self.way_out.channels.states)

    def unsettled(self) -> Sequence[str]:
        """Problems with the owner's own ids on the messengers, in words."""
        return self.core.people.unsettled(self.core.current.config.owner.ids, self.core.current.enabled_channels())

    def webhooks(self) -> dict[str, WebhookChannel]:
        """The open channels that a platform calls by webhook."""
        return {name: each for name, each in self._open.items() if isinstance(each, WebhookChannel)}

    def logins(self) -> dict[str, LoginChannel]:
        """The open channels that people sign in to here; leaves out those that another machine holds."""
        ours = self.way_out.leases.has
        return {name: each for name, each in self._open.items() if isinstance(each, LoginChannel) and ours(name)}

    def deep_link(self, name: str, code: str) -> str:
        """The channel's address with a code in it; empty if the channel has no such address."""
        channel = self._open.get(name)
        return channel.deep_link(code) if isinstance(channel, DeepLinkChannel) else ""

    def spec(self, channel: str) -> ChannelSpec:
        """The channel's specification as if the channel were enabled; raises `ConfigError`."""
        section = required(self.core.current.config.channels.get(channel), ConfigError(f"{channel} is not configured"))
        enabled = {channel: {**section, "enabled": True}}
        return channel_specs(enabled, (), self.core.environment.data, lambda _: NoFacts())[channel]


async def _status(parts: Parts, started_at: datetime, unsettled: Callable[[], Sequence[str]]) -> StatusReport:
    """The current status; while the database is unavailable, without the facts that only it has."""
    core = parts.core
    report = StatusReport(
        version=version("supaclaw"),
        started_at=started_at,
        model=core.current.describe().active,
        queue={},
        channels=parts.way_out.channels.states,
        today=ModelUse(),
        vitals=parts.upkeep.vitals(),
        unsettled=unsettled(),
        database_problem=parts.upkeep.health.database_problem or None,
    )
    try:
        return await core.database.read(lambda conn: _with_database(report, conn, core.clock.now()))
    except DatabaseDown as exc:
        return replace(report, database_problem=str(exc))


async def _with_database(report: StatusReport, conn: Connection, now: datetime) -> StatusReport:
    return replace(
        report,
        outdated=await outdated(conn) or None,
        queue={status.value: count for status, count in (await tasks.queue(conn)).items()},
        today=await steps.spent_since(conn, now.replace(hour=0, minute=0, second=0, microsecond=0)),
        undelivered=await outbox.waiting(conn),
        embedding=await vectors.state(conn),
        machines={f"{each.name} {str(each.id)[:8]}": each.told for each in await instances.every(conn)},
    )
