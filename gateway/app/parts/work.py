"""Work: the worker and its jobs, the files that machines share, and task trees."""

from dataclasses import dataclass

from gateway.agent.work.task_trees import Trees
from gateway.app.parts.core import Core, Records
from gateway.app.parts.turns import Turns
from gateway.app.parts.way_out import WayOut
from gateway.background import jobs
from gateway.background.budgets import BackgroundModel
from gateway.background.cpu.executor import ScratchFolder
from gateway.background.cpu.extraction import TextExtraction
from gateway.background.jobs import FileParts, JobParts, Models
from gateway.background.upkeep.heartbeat import HeartbeatHalt
from gateway.background.worker import TaskPlacement, Worker, Workplace
from gateway.domain.work.tasks import Lane
from gateway.flow.files.sync import FileSync
from gateway.flow.trees.control import TraceFollowers, TreeControl
from gateway.flow.turn.runner import AgentParts
from gateway.store.work import schedule_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The parts that run tasks."""

    worker: Worker
    parts: JobParts
    file_sync: FileSync
    workplace: Workplace
    trees: TreeControl
    traces: TraceFollowers


def build_work(core: Core, records: Records, way_out: WayOut, turns: Turns, *, workplace: Workplace) -> Work:
    """Build the work; starts nothing."""
    tell_owner, environments = way_out.notices.tell_owner, turns.environments
    file_sync = FileSync(
        engine=core,
        workspaces=records.workspaces,
        locks_of=lambda principal: environments.of(principal).locks,
        data=core.environment.data,
        settings=lambda: core.current.config.workspace,
        rules=core.net_rules,
        at_home=lambda: workplace.here,
        tell_owner=tell_owner,
    )

    async def tidy() -> None:
        """Request a synchronisation of changed files after each run, and drop finished to-do lists."""
        if file_sync.on:
            file_sync.want()
            core.signals.files.set()
        await environments.drop_todo_lists()

    halt = HeartbeatHalt(lambda: core.current.config.models)
    parts = _job_parts(core, records, way_out, turns, file_sync, halt)
    return Work(
        worker=Worker(
            engine=core,
            runners=jobs.discover(parts),
            lanes=(Lane.CHAT, Lane.FILES, Lane.AGENTS),
            tell_owner=tell_owner,
            works=records.rehearsal.succeeds,
            ended=tidy,
            abandoned=schedule_runs.mark_failed,
            able=TaskPlacement(workplace, file_sync).able,
        ),
        parts=parts,
        file_sync=file_sync,
        workplace=workplace,
        trees=TreeControl(core, core.people.owner.id, Trees(turns.own.agents, lambda: core.current.config.budgets)),
        traces=TraceFollowers(core.database, core.instance),
    )


def _job_parts(
    core: Core, records: Records, way_out: WayOut, turns: Turns, file_sync: FileSync, halt: HeartbeatHalt
) -> JobParts:
    current = core.current
    return JobParts(
        engine=core,
        agents=AgentParts(
            environments=turns.environments,
            runner=turns.runner,
            finisher=turns.finisher,
            questions=turns.questions,
            file_sync=file_sync,
        ),
        delivery=way_out,
        files=FileParts(
            workspaces=records.workspaces,
            uploads=records.uploads,
            journal=records.journal,
            extraction=TextExtraction(
                engine=core,
                workspaces=records.workspaces,
                cpu=records.cpu,
                scratch=ScratchFolder(core.environment.state / "ingest"),
                hear=current.hear,
                budgets=turns.budgets,
            ),
        ),
        models=Models(
            chat=current.chat_model,
            agent=current.agent_model,
            heartbeat=current.heartbeat_model,
            summary=BackgroundModel(current.summary_model, turns.budgets),
            cheap=BackgroundModel(current.cheap_model, turns.budgets),
            speech=current.speech,
        ),
        halt=halt,
        heartbeat_channel=lambda: current.config.heartbeat.to,
    )
