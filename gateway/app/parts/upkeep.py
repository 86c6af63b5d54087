"""Upkeep: timed jobs, the watches on the process, and its health."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from gateway.app.parts.core import Core, Records
from gateway.app.parts.turns import Turns
from gateway.app.parts.way_out import WayOut
from gateway.app.parts.work import Work
from gateway.app.storage.scheduled import ScheduledBackup
from gateway.background.budgets import may_embed
from gateway.background.upkeep.event_loop import LagMonitor
from gateway.background.upkeep.health import Health, Stop, notify_systemd
from gateway.background.upkeep.heartbeat import Heartbeat
from gateway.background.upkeep.housekeeping import Retention, prune_logs, reload_secrets, report_restarts
from gateway.background.upkeep.memory_index import POLL_FILES, FilePassages, Indexing
from gateway.background.upkeep.ram import MemoryCeiling, ceiling
from gateway.background.upkeep.schedules import CONSOLIDATION_INTERVAL, Scheduler, queue_consolidations
from gateway.background.upkeep.telemetry import Collector, Telemetry
from gateway.background.upkeep.timers import Interval, JobTable, Look, Loops, Periodic, only_if
from gateway.background.worker import POLL_WORKPLACE_SECONDS
from gateway.config.data.instance import StartHistory
from gateway.domain.health import Vitals
from gateway.domain.text import tokens
from gateway.domain.work.tasks import BEAT_SECONDS
from gateway.domain.work.trees import FILES as TREE_FILES
from gateway.flow.model_refusals import RefusalKeeper
from gateway.flow.unattended.hooks import Hooks
from gateway.store.work.instances import RENEW_SECONDS

DAY, HOOK_INTERVAL = timedelta(days=1), timedelta(seconds=5)
FIRST_CHECKPOINT_SECONDS = 30.0
"""A start has more urgent work to do first."""
SCHEDULES, SECRETS, FILES = "schedules", "secrets", "files"
EMBED, LOG_PRUNING = "embed", "log pruning"
WORKERS_JOBS = frozenset({SECRETS, FILES, EMBED, LOG_PRUNING})
"""The jobs that a worker runs; it leaves all others to gateways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The parts that work by the clock."""

    health: Health
    job_table: JobTable
    heartbeat: Heartbeat
    indexing: Indexing
    starts: StartHistory
    vitals: Callable[[], Vitals]
    """The vitals as of the last look of each watch, for /status and the Health page; asks none to look again."""
    loops: Loops
    """The loops that start with the process. They use the monotonic clock, so setting the system clock stops none."""


def build_upkeep(
    core: Core, records: Records, way_out: WayOut, turns: Turns, work: Work, *, starts: StartHistory, stop: Stop
) -> Upkeep:
    """Build the upkeep; starts nothing."""
    environment, current, clock = core.environment, core.current, core.clock
    health = Health(
        engine=core,
        file=environment.state / "health",
        stuck=way_out.channels.stuck,
        stop=stop,
        held=way_out.leases.held,
    )
    lag = LagMonitor(health.check_after_freeze)
    for forget in (tokens.forget, turns.environments.forget, records.workspaces.forget):
        core.signals.memory_low.subscribe_call(forget)
    ram = MemoryCeiling(
        ceiling=lambda: ceiling(current.config.limits.memory_mb),
        signals=core.signals,
        limit=work.worker.limit,
        tell=way_out.notices.tell_owner,
    )
    heartbeat = _heartbeat(core, records, way_out, turns, work)
    indexing = _indexing(core, records)
    job_table = _job_table(core, _looks(core, records, way_out, turns, heartbeat, indexing))

    def vitals() -> Vitals:
        files = turns.environments.reading or (turns.file_sync.state if turns.file_sync.on else None)
        return Vitals(
            loop=lag.lag,
            memory=ram.memory,
            channels=way_out.channels.vitals,
            unclean_ends=starts.ended(clock.now(), DAY),
            checkpoints="off" if current.config.checkpoints.every is None else records.checkpointing.state,
            files=files,
            heartbeat=heartbeat.state,
            jobs=job_table.dates,
        )

    return Upkeep(
        health=health,
        job_table=job_table,
        heartbeat=heartbeat,
        indexing=indexing,
        starts=starts,
        vitals=vitals,
        loops={
            "lag": lag.run,
            "restarts": partial(report_restarts, environment.state, starts, way_out.notices.tell_owner, clock),
            **{each.name: each.run for each in _periodic(core, way_out, work, health, ram)},
            **({"telemetry": Telemetry(core, to).run} if (to := Collector.read(os.environ, "traces")) else {}),
        },
    )


def _heartbeat(core: Core, records: Records, way_out: WayOut, turns: Turns, work: Work) -> Heartbeat:
    return Heartbeat(
        engine=core,
        environments=turns.environments,
        config=lambda: core.current.config,
        model=core.current.heartbeat_model,
        budgets=records.budgets,
        halt=work.parts.halt,
        tell_owner=way_out.notices.tell_owner,
    )


def _indexing(core: Core, records: Records) -> Indexing:
    passages = FilePassages(core, records.workspaces.of, core.cleaner("files"))
    files = only_if(lambda: core.workplace.here, Interval(lambda: POLL_FILES, passages.look, core.clock).look)
    return Indexing(core, records.embedders.embedder, files, partial(may_embed, core))


def _periodic(core: Core, way_out: WayOut, work: Work, health: Health, ram: MemoryCeiling) -> Sequence[Periodic]:
    refusals = RefusalKeeper(core.database, core.current.refusals, way_out.notices.tell_owner, core.clock)
    return (
        Periodic("leases and health file", RENEW_SECONDS, health.look),
        Periodic("leases of runs", BEAT_SECONDS, work.worker.beat),
        Periodic("refusals", 5.0, refusals.look),
        Periodic("channels", 5.0, way_out.channels.look),
        Periodic("memory", 10.0, ram.look),
        Periodic("systemd", 10.0, partial(notify_systemd, core.environment.notify_socket, "WATCHDOG=1")),
        Periodic("workspace", POLL_WORKPLACE_SECONDS, core.workplace.look),
    )


def _job_table(core: Core, looks: Mapping[str, Look]) -> JobTable:
    kept = looks.keys() if core.workplace.kind == "gateway" else WORKERS_JOBS
    signals = {SCHEDULES: core.signals.schedules, SECRETS: core.signals.secrets, FILES: core.signals.files}
    return JobTable({name: look for name, look in looks.items() if name in kept}, core.clock, signals)


def _looks(
    core: Core, records: Records, way_out: WayOut, turns: Turns, heartbeat: Heartbeat, indexing: Indexing
) -> Mapping[str, Look]:
    """The jobs of the job table, by name; people see the name and the date."""
    current, clock, database, workplace = core.current, core.clock, core.database, core.workplace
    first = clock.monotonic() + FIRST_CHECKPOINT_SECONDS
    tree_files = core.environment.workspace / TREE_FILES
    clearing = Retention(database, tree_files, lambda: current.config.retention, clock)
    logs = partial(prune_logs, core.environment.state / "logs", lambda: current.config.logs.keep, clock)
    tell_owner, keeps_files = way_out.notices.tell_owner, workplace.kind == "gateway"
    owner, clean = core.people.owner.id, core.cleaner("hooks")
    hooks = Hooks(database, owner, lambda: current.config.hooks, core.net_rules, records.budgets.used_up, clean, clock)
    told = only_if(lambda: workplace.here, hooks.look)
    # A worker beside a gateway leaves the files to the gateway.
    return {
        SCHEDULES: Scheduler(core).look,
        "heartbeat": only_if(lambda: workplace.here, heartbeat.look),
        "approvals": turns.questions.look,
        SECRETS: partial(reload_secrets, core.secrets, clock),
        EMBED: indexing.look,
        FILES: only_if(lambda: keeps_files or not workplace.here, turns.file_sync.look),
        "backup": ScheduledBackup(core.environment, lambda: current.config, database, tell_owner, clock).look,
        "hooks": Interval(lambda: HOOK_INTERVAL if current.config.hooks else None, told, clock).look,
        "consolidation": Interval(lambda: CONSOLIDATION_INTERVAL, partial(queue_consolidations, core), clock).look,
        "checkpoints": Interval(lambda: current.config.checkpoints.every, records.checkpointing.run, clock, first).look,
        LOG_PRUNING: Interval(lambda: DAY, logs, clock).look,
        "retention": Interval(lambda: DAY, clearing.run, clock, first).look,
    }
