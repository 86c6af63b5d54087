"""Work: the worker and its jobs, the files that machines share, and task trees."""

from dataclasses import dataclass
from functools import partial

from gateway.agent.work.task_trees import Trees
from gateway.app.parts.core import Core, Records
from gateway.app.parts.turns import Turns
from gateway.app.parts.way_out import WayOut
from gateway.background import jobs
from gateway.background.budgets import BackgroundModel
from gateway.background.jobs import JobParts, Models
from gateway.background.upkeep.heartbeat import HeartbeatHalt
from gateway.background.worker import Worker, can_run
from gateway.domain.work.tasks import Lane
from gateway.flow.trees.control import TraceFollowers, TreeControl
from gateway.store.work import schedule_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The parts that run tasks."""

    worker: Worker
    parts: JobParts
    trees: TreeControl
    traces: TraceFollowers


def build_work(core: Core, records: Records, way_out: WayOut, turns: Turns) -> Work:
    """Build the work; starts nothing."""
    tell_owner, environments, file_sync = way_out.notices.tell_owner, turns.environments, turns.file_sync

    async def tidy() -> None:
        """Request a synchronisation of changed files after each run, and drop finished to-do lists."""
        if file_sync.on:
            file_sync.want()
            core.signals.files.set()
        await environments.drop_todo_lists()

    parts = _job_parts(core, records, way_out, turns, HeartbeatHalt(lambda: core.current.config.models))
    return Work(
        worker=Worker(
            engine=core,
            runners=jobs.discover(parts),
            lanes=(Lane.CHAT, Lane.FILES, Lane.AGENTS),
            tell_owner=tell_owner,
            works=records.rehearsal.succeeds,
            ended=tidy,
            abandoned=schedule_runs.mark_failed,
            able=partial(can_run, core.workplace, file_sync),
        ),
        parts=parts,
        trees=TreeControl(core, core.people.owner.id, Trees(turns.own.agents, lambda: core.current.config.budgets)),
        traces=TraceFollowers(core.database, core.instance),
    )


def _job_parts(core: Core, records: Records, way_out: WayOut, turns: Turns, halt: HeartbeatHalt) -> JobParts:
    current = core.current
    return JobParts(
        engine=core,
        agents=turns,
        delivery=way_out,
        files=records,
        models=Models(
            chat=current.chat_model,
            agent=current.agent_model,
            heartbeat=current.heartbeat_model,
            summary=BackgroundModel(current.summary_model, records.budgets),
            cheap=BackgroundModel(current.cheap_model, records.budgets),
            speech=current.speech,
        ),
        halt=halt,
        heartbeat_channel=lambda: current.config.heartbeat.to,
    )
