"""Work: the worker and its jobs, the files that machines share, and task trees."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.agent.work.task_trees import Trees
from gateway.app.parts.core import Core, Records
from gateway.app.parts.turns import Turns
from gateway.app.parts.way_out import WayOut
from gateway.background import jobs
from gateway.background.budgets import BackgroundModel
from gateway.background.cpu.executor import ScratchFolder
from gateway.background.cpu.extraction import TextExtraction
from gateway.background.jobs import AgentParts, FileParts, JobParts, Models
from gateway.background.upkeep.heartbeat import HeartbeatHalt
from gateway.background.worker import Runner, TaskPlacement, Worker, Workplace
from gateway.domain.work.tasks import Lane
from gateway.flow.files.sync import FileSync
from gateway.flow.signals import Signals
from gateway.flow.trees.control import TraceFollowers, TreeControl
from gateway.flow.turn.environment import AgentEnvironments
from gateway.store.work import schedule_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The parts that run tasks."""

    worker: Worker
    parts: JobParts
    runners: Mapping[str, Runner]
    file_sync: FileSync
    placement: TaskPlacement
    trees: TreeControl
    traces: TraceFollowers
    halt: HeartbeatHalt


@dataclass(frozen=True, slots=True)
class RunAftercare:
    """The steps after the end of each run."""

    file_sync: FileSync
    environments: AgentEnvironments
    signals: Signals

    async def __call__(self) -> None:
        """Request a synchronisation of changed files, and drop finished to-do lists."""
        if self.file_sync.on:
            self.file_sync.want()
            self.signals.files.set()
        await self.environments.drop_todo_lists()


def build_work(core: Core, records: Records, way_out: WayOut, turns: Turns, *, workplace: Workplace) -> Work:
    """Build the work; starts nothing."""
    tell_owner, environments = way_out.notices.tell_owner, turns.environments
    file_sync = FileSync(
        database=core.database,
        people=core.people,
        workspaces=records.workspaces,
        locks_of=lambda principal: environments.of(principal).locks,
        data=core.environment.data,
        settings=lambda: core.current.config.workspace,
        rules=core.net_rules,
        at_home=lambda: workplace.here,
        tell_owner=tell_owner,
        clock=core.clock,
        failpoints=core.failpoints,
    )
    placement = TaskPlacement(workplace, file_sync)
    halt = HeartbeatHalt(lambda: core.current.config.models)
    parts = _job_parts(core, records, way_out, turns, file_sync, halt)
    runners = jobs.discover(parts)
    return Work(
        worker=Worker(
            database=core.database,
            instance=core.instance,
            runners=runners,
            lanes=(Lane.CHAT, Lane.FILES, Lane.AGENTS),
            signals=core.signals,
            tell_owner=tell_owner,
            works=records.rehearsal.succeeds,
            ended=RunAftercare(file_sync, environments, core.signals),
            abandoned=schedule_runs.mark_failed,
            able=placement.able,
        ),
        parts=parts,
        runners=runners,
        file_sync=file_sync,
        placement=placement,
        trees=TreeControl(
            core.database,
            core.people.owner.id,
            Trees(turns.own.agents, lambda: core.current.config.budgets),
            core.signals,
        ),
        traces=TraceFollowers(core.database, core.instance),
        halt=halt,
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
                database=core.database,
                workspaces=records.workspaces,
                cpu=records.cpu,
                scratch=ScratchFolder(core.environment.state / "ingest"),
                hear=current.hear,
                budgets=turns.budgets,
                failpoints=core.failpoints,
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
