"""What the web is given of a running gateway."""

import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from gateway.agent.toolbox import Toolbox
from gateway.app.local import page_name
from gateway.app.wiring import Parts
from gateway.background.cpu.executor import run_alone
from gateway.config.channels import enabled_channels
from gateway.config.load import variable_of
from gateway.config.watch import ConfigWatch
from gateway.domain.channels.channel import DeepLinkChannel, LoginChannel, NoFacts, WebhookChannel
from gateway.domain.errors import ConfigError, DatabaseDown
from gateway.domain.health import Finding
from gateway.domain.work.tasks import Status
from gateway.flow.channels.supervisor import ChannelProbes, ChannelSpec, channel_specs
from gateway.flow.files.checkpoints import Checkpoints
from gateway.flow.inbound.answers import Answers
from gateway.flow.people import Pairing
from gateway.flow.setup import Setup
from gateway.flow.unattended.triggers import Triggers
from gateway.store.delivery import outbox
from gateway.store.memory import vectors
from gateway.store.migrate import outdated
from gateway.store.work import instances, steps, tasks
from gateway.store.work.steps import ModelUse
from gateway.workspace.files.tree import Workspace

if TYPE_CHECKING:
    from gateway.config.editing.editor import ConfigEditor
    from gateway.web.backend import Backend, StatusReport


def build_backend(parts: Parts, local_token: str, watch: ConfigWatch) -> "Backend":
    """Imports the web, so it is called once the gateway is ready."""
    from gateway.web.backend import Backend

    database, started_at, name = parts.database, parts.clock.now(), page_name(parts.environment.data)
    return Backend(
        database=database,
        inbox=parts.inbound,
        answers=Answers(database, parts.live),
        live=parts.live,
        owner=parts.people.owner,
        local_token=local_token,
        page_name=name,
        webhooks=lambda: {n: c for n, c in parts.channel_manager.channels.items() if isinstance(c, WebhookChannel)},
        status=lambda: _status(parts, started_at, _unsettled(parts)),
        healthy=lambda: parts.condition.health.well,
        waits_for_database=lambda: bool(parts.condition.health.database_problem),
        clock=parts.clock,
        uploads=parts.uploads,
        files=parts.environment.workspace,
        workspace=parts.environments.of(parts.people.owner.id).workspace,
        checkpoints=Checkpoints(parts.environment.workspace, parts.environment.data, partial(run_alone, seconds=600.0)),
        public_url=_public_url(parts, name),
        pairing=Pairing(database, partial(_decided, parts)),
        unsettled=partial(_unsettled, parts),
        embedder=parts.embedders.embedder,
        tools=lambda: [spec.name for spec in parts.environments.of(parts.people.owner.id).toolbox.specs],
        wordings=lambda: parts.environments.of(parts.people.owner.id).toolbox.wordings,
        allowed_hosts=lambda: parts.current.config.web.allowed_hosts,
        beat=parts.heartbeat.beat,
        lets_in=parts.people.lets_in,
        triggers=_triggers(parts),
        trees=parts.tree_control,
        traces=parts.traces,
        channels=partial(_states, parts),
        probes=ChannelProbes(partial(_spec, parts), parts.clock),
        skills=parts.environments.skills,
        tool_files=parts.tool_files,
        toolbox=partial(_toolbox, parts),
        tools_off=parts.environments.switched_off,
        zones=parts.zones,
        settings=_settings(parts, watch),
        logins=partial(_logins, parts),
        jobs=lambda: parts.job_table.dates,
        model=parts.current.describe,
        setup=_setup(parts),
        deep_link=partial(_deep_link, parts),
        variable_of=lambda key: variable_of(key, os.environ),
        commands={name: command.summary for name, command in parts.commands.items()},
        on_shed=parts.condition.shed.append,
        on_people_changed=parts.gate.on_people_changed.append,
        links=parts.links,
        limits=parts.current.limits,
        findings=partial(_findings, parts),
        logs=parts.environment.data / "logs",
        mask=parts.mask,
        secrets=parts.secrets,
        secret_links=parts.secret_links,
    )


def _public_url(parts: Parts, page: str) -> str | None:
    from gateway.web.http.headers import page_url

    public = parts.current.config.web.public_url
    return public and page_url(public, page)


def _settings(parts: Parts, watch: ConfigWatch) -> "ConfigEditor":
    from gateway.config.editing.editor import ConfigEditor

    return ConfigEditor(parts.environment, os.environ, watch)


async def _decided(parts: Parts) -> None:
    await parts.people.refresh(parts.database)
    parts.outbound.wake()


def _unsettled(parts: Parts) -> Sequence[str]:
    config = parts.current.config
    return parts.people.unsettled(config.owner.ids, enabled_channels(config.channels))


def _triggers(parts: Parts) -> Triggers:
    workspace, owner = Workspace(parts.environment.workspace), parts.people.owner.id
    return Triggers(parts.database, owner, workspace, lambda: parts.channel_manager.states, parts.worker.wake)


async def _toolbox(parts: Parts) -> Toolbox:
    await parts.environments.refresh()
    toolbox = parts.environments.of(parts.people.owner.id).toolbox
    await toolbox.refresh()
    return toolbox


def _setup(parts: Parts) -> Setup:
    hide, lookup = parts.mask.add, parts.secrets.lookup
    return Setup(parts.environment, os.environ, parts.clock, lambda: parts.current.config, hide, lookup)


def _findings(parts: Parts) -> Sequence[tuple[str, Finding]]:
    from gateway.app.checks import load_context, run_checks

    return list(run_checks(load_context(parts.environment, os.environ, live=False, secrets=parts.secrets.lookup)))


def _spec(parts: Parts, channel: str) -> ChannelSpec:
    section = parts.current.config.channels.get(channel)
    if section is None:
        raise ConfigError(f"{channel} is not configured")
    enabled = {channel: {**section, "enabled": True}}
    return channel_specs(enabled, (), parts.environment.data, lambda _: NoFacts())[channel]


def _logins(parts: Parts) -> dict[str, LoginChannel]:
    """Those to log in to here: not what another machine has the login of."""
    channels, ours = parts.channel_manager.channels, parts.channel_leases.has
    return {name: each for name, each in channels.items() if isinstance(each, LoginChannel) and ours(name)}


def _states(parts: Parts) -> dict[str, str]:
    configured = dict.fromkeys(parts.current.config.channels, "disabled")
    return configured | dict(parts.channel_manager.states)


def _deep_link(parts: Parts, name: str, code: str) -> str:
    channel = parts.channel_manager.channels.get(name)
    return channel.deep_link(code) if isinstance(channel, DeepLinkChannel) else ""


async def _status(parts: Parts, started_at: datetime, unsettled: Sequence[str]) -> "StatusReport":
    from gateway.web.backend import StatusReport

    now, problem = parts.clock.now(), parts.condition.health.database_problem
    older, embedding, queue, today, undelivered = "", "", dict[Status, int](), ModelUse(), dict[str, str]()
    machines = dict[str, str]()
    try:
        async with parts.database.connection() as conn:
            older = await outdated(conn)
            queue = await tasks.queue(conn)
            today = await steps.spent_since(conn, now.replace(hour=0, minute=0, second=0, microsecond=0))
            undelivered = await outbox.waiting(conn)
            embedding = await vectors.state(conn)
            machines = {f"{each.name} {str(each.id)[:8]}": each.told for each in await instances.every(conn)}
    except DatabaseDown as exc:
        problem = str(exc)
    return StatusReport(
        version=version("supaclaw"),
        started_at=started_at,
        model=parts.current.describe().active,
        queue={status.value: count for status, count in queue.items()},
        channels=parts.channel_manager.states,
        today=today,
        vitals=parts.vitals(),
        outdated=older or None,
        unsettled=unsettled,
        undelivered=undelivered,
        embedding=embedding,
        machines=machines,
        database_problem=problem or None,
    )
