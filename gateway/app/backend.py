"""Builds the backend of the web from the parts of a running gateway."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from gateway.agent.toolbox import Toolbox
from gateway.app.assembly import Parts
from gateway.app.local import page_name
from gateway.app.parts.core import Core
from gateway.app.parts.way_in import WayIn
from gateway.app.parts.way_out import WayOut
from gateway.background.cpu.executor import run_alone
from gateway.config.load import variable_of
from gateway.config.watch import ConfigWatch
from gateway.domain.channels.channel import Channel, DeepLinkChannel, LoginChannel, NoFacts, WebhookChannel
from gateway.domain.errors import ConfigError, DatabaseDown
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
from gateway.workspace.files.tree import Workspace

if TYPE_CHECKING:
    from gateway.web.backend import Backend, StatusReport


def build_backend(parts: Parts, way_in: WayIn, local_token: str, watch: ConfigWatch) -> "Backend":
    """Build the backend. Imports the web, so call it when the gateway is ready."""
    from gateway.config.editing.editor import ConfigEditor
    from gateway.web import backend as web

    core, way_out, turns, upkeep = parts.core, parts.way_out, parts.turns, parts.upkeep
    environment, current, database, clock = core.environment, core.current, core.database, core.clock
    environments, workspaces, health = turns.environments, parts.records.workspaces, upkeep.health
    page, page_links, channels = page_name(environment.data), way_in.page_links, ChannelDirectory(core, way_out)
    own = partial(environments.of, core.people.owner.id)
    return web.Backend(
        database=database,
        owner=core.people.owner,
        clock=clock,
        signals=core.signals,
        access=web.PageAccess(
            local_token=local_token,
            page_name=page,
            public_url=_public_url(page_links.public_url, page),
            allowed_hosts=lambda: current.config.web.allowed_hosts,
            lets_in=core.people.lets_in,
            links=page_links.logins,
            secret_links=page_links.secrets,
            clock=clock,
        ),
        chat=web.ChatParts(
            inbox=way_in.inbound,
            answers=Answers(database, core.live),
            live=core.live,
            wordings=lambda: own().toolbox.wordings,
            commands={command.name: command.summary for command in way_in.commands.values()},
            zones=way_in.zones,
            embedder=parts.records.embedders.embedder,
        ),
        files=web.FileParts(
            root=environment.workspace,
            workspace=workspaces.own,
            uploads=parts.records.uploads,
            checkpoints=Checkpoints(environment.workspace, environment.data, partial(run_alone, seconds=600.0)),
        ),
        trees=web.TreeParts(
            control=parts.work.trees,
            traces=parts.work.traces,
            triggers=Triggers(
                database,
                core.people.owner.id,
                Workspace(environment.workspace),
                lambda: way_out.channels.states,
                core.signals,
            ),
            agents=turns.own.agents,
        ),
        tools=web.ToolParts(
            skills=turns.own.skills,
            tool_files=turns.own.tool_files,
            toolbox=partial(refreshed_toolbox, environments),
            names=lambda: [spec.name for spec in own().toolbox.specs],
            switched_off=environments.switched_off,
        ),
        channels=web.ChannelParts(
            states=channels.states,
            webhooks=channels.webhooks,
            logins=channels.logins,
            probes=ChannelProbes(channels.spec, clock),
            deep_link=channels.deep_link,
            setup=Setup(environment, os.environ, clock, lambda: current.config, core.mask.add, core.secrets.lookup),
            pairing=Pairing(database, partial(_access_decided, core)),
            unsettled=channels.unsettled,
        ),
        settings=web.SettingParts(
            editor=ConfigEditor(environment, os.environ, watch),
            secrets=core.secrets,
            variable_of=lambda key: variable_of(key, os.environ),
            model=current.describe,
            limits=current.limits,
        ),
        health=web.HealthParts(
            status=StatusQuery(parts, clock.now(), channels.unsettled).now,
            healthy=lambda: health.healthy,
            waits_for_database=lambda: bool(health.database_problem),
            findings=partial(_findings, core),
            logs=environment.data / "logs",
            mask=core.mask,
            jobs=lambda: upkeep.job_table.dates,
            beat=upkeep.heartbeat.beat,
        ),
    )


def _public_url(public: str | None, page: str) -> str | None:
    from gateway.web.http.headers import page_url

    return public and page_url(public, page)


async def _access_decided(core: Core) -> None:
    await core.people.refresh(core.database)
    core.signals.outbox.set()


async def refreshed_toolbox(environments: AgentEnvironments) -> Toolbox:
    """The owner's toolbox, after looking for new tools at its sources."""
    await environments.refresh()
    toolbox = environments.of(environments.people.owner.id).toolbox
    await toolbox.refresh()
    return toolbox


def _findings(core: Core) -> Sequence[tuple[str, Finding]]:
    from gateway.app.checks import load_context, run_checks

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
        configured = dict.fromkeys(self.core.current.config.channels, "disabled")
        return configured | dict(self.way_out.channels.states)

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
        section = self.core.current.config.channels.get(channel)
        if section is None:
            raise ConfigError(f"{channel} is not configured")
        enabled = {channel: {**section, "enabled": True}}
        return channel_specs(enabled, (), self.core.environment.data, lambda _: NoFacts())[channel]


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """Reads the status of the gateway and its database."""

    parts: Parts
    started_at: datetime
    unsettled: Callable[[], Sequence[str]]

    async def now(self) -> "StatusReport":
        """The current status; while the database is unavailable, without the facts that only it has."""
        from gateway.web.backend import StatusReport

        core = self.parts.core
        report = StatusReport(
            version=version("supaclaw"),
            started_at=self.started_at,
            model=core.current.describe().active,
            queue={},
            channels=self.parts.way_out.channels.states,
            today=ModelUse(),
            vitals=self.parts.upkeep.vitals.now(),
            unsettled=self.unsettled(),
            database_problem=self.parts.upkeep.health.database_problem or None,
        )
        try:
            async with core.database.connection() as conn:
                return await _with_database(report, conn, core.clock.now())
        except DatabaseDown as exc:
            return replace(report, database_problem=str(exc))


async def _with_database(report: "StatusReport", conn: Connection, now: datetime) -> "StatusReport":
    return replace(
        report,
        outdated=await outdated(conn) or None,
        queue={status.value: count for status, count in (await tasks.queue(conn)).items()},
        today=await steps.spent_since(conn, now.replace(hour=0, minute=0, second=0, microsecond=0)),
        undelivered=await outbox.waiting(conn),
        embedding=await vectors.state(conn),
        machines={f"{each.name} {str(each.id)[:8]}": each.told for each in await instances.every(conn)},
    )
