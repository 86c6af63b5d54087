"""The parts of a gateway, wired: the only place that builds them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from gateway import commands, tools
from gateway.agent.limits import Limits
from gateway.app.condition import Condition
from gateway.background.cpu import Cpu
from gateway.background.halt import Halt
from gateway.background.heartbeat import Heartbeat
from gateway.background.jobs.agent import AgentRun
from gateway.background.jobs.describe import Describe
from gateway.background.jobs.heartbeat import HeartbeatRun
from gateway.background.jobs.ingest import Ingest
from gateway.background.reading import Hear, Reading
from gateway.background.scheduler import Scheduler
from gateway.background.worker import Runner, Worker
from gateway.config.channels import switched_on
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.model import Config
from gateway.config.starts import Starts
from gateway.domain.channel import Channel
from gateway.domain.clock import Clock
from gateway.domain.ids import InstanceId, MessageId, SessionId
from gateway.domain.inbound import Address
from gateway.domain.tasks import Lane
from gateway.domain.vitals import Vitals
from gateway.flow.answering import Answering
from gateway.flow.budgets import Budgets
from gateway.flow.compacting import Compacting
from gateway.flow.concluding import Concluding
from gateway.flow.delivering import Delivering
from gateway.flow.dispatch import Dispatch
from gateway.flow.doors import Doors
from gateway.flow.gate import Gate
from gateway.flow.homes import Homes
from gateway.flow.inbound import InboundFlow
from gateway.flow.journal.journal import Journal
from gateway.flow.live import Live, MessageStored
from gateway.flow.notices import Notices
from gateway.flow.outages import Outages
from gateway.flow.outbound import Outbound
from gateway.flow.people import People
from gateway.flow.posting import Posting
from gateway.flow.settling import Settling
from gateway.flow.turns import Turns
from gateway.flow.uploads import Uploads
from gateway.llm.client import Description, ModelClient
from gateway.store import journals
from gateway.store.pool import Database

MEGABYTE = 1024 * 1024


@dataclass
class Current:
    """What a saved config.json changes while everything runs; the parts ask for it whenever they need it."""

    config: Config
    model: ModelClient

    def limits(self) -> Limits:
        """What a run, a day and a month may cost."""
        budgets = self.config.budgets
        return Limits(usd=budgets.run_usd, day_usd=budgets.day_usd, month_usd=budgets.month_usd)

    def describe(self) -> Description:
        """Which models answer, and why."""
        return self.model.describe()

    def summary_model(self) -> ModelClient | None:
        """Who writes summaries and one-line descriptions; None when no model is connected."""
        return self.model.led_by(self.config.models.summary)

    def heartbeat_model(self) -> ModelClient | None:
        """Who is asked by a heartbeat; None when no model is connected."""
        return self.model.led_by(self.config.heartbeat.model)

    def hear(self) -> Hear | None:
        """Who writes down what is said in audio; None when no model for it is named."""
        name = self.config.models.transcription
        return None if name is None else partial(self.model.transcribe, name)

    def longest_file(self) -> int:
        """Bytes of the largest file that is taken in."""
        return self.config.limits.file_mb * MEGABYTE


class Parts:
    """Everything a running gateway is made of, each built once, in the order in which they need each other."""

    def __init__(
        self,
        environment: Environment,
        current: Current,
        database: Database,
        people: People,
        instance: InstanceId,
        failpoints: Failpoints,
        starts: Starts,
        clock: Clock,
    ) -> None:
        self.people = people
        self.commands = commands.discover()
        self.live = Live()
        self.cpu = Cpu()
        self.outbound = Outbound(database, failpoints, lambda principal: self.homes.of(principal).workspace.root)
        self.delivering = Delivering(database, self.outbound, self.live, lambda: switched_on(current.config.channels))
        self.notices = Notices(people, self.delivering)
        self.outages = Outages(database, self.outbound, clock)
        self.doors = Doors(self.outbound, self.notices.tell_owner)
        posting = Posting(database, self.outbound, self.delivering)
        self.homes = Homes(
            database,
            people,
            environment.workspace,
            environment.data / "principals",
            tools.discover(),
            posting,
            clock,
            owner_zone=lambda: current.config.owner.timezone,
        )
        self.uploads = Uploads(database, self.homes, clock, current.longest_file)
        self.journal = Journal(database, people, environment.workspace, environment.data, clock)
        self.live.listen(self.journal.changed)
        self.halt = Halt(lambda: current.config.models)
        runners = self._runners(environment, current, database, failpoints, clock)
        self.worker = Worker(database, instance, runners, [Lane.CHAT, Lane.FILES, Lane.AGENTS], self.notices.tell_owner)
        settling = Settling(database, people, self.delivering)
        self.scheduler = Scheduler(database, clock, failpoints, settling.settle, self.worker.wake, people.lets_in)
        self.heartbeat = Heartbeat(
            database,
            people,
            self.homes,
            lambda: current.config,
            current.heartbeat_model,
            Budgets(database, current.limits, clock),
            self.halt,
            self.notices.tell_owner,
            self.worker.wake,
            clock,
        )
        self.dispatch = Dispatch(
            database,
            self.commands,
            current.describe,
            self.outbound,
            self.worker.cancel,
            self.live,
            clock,
            failpoints,
            vitals=self.vitals,
            limits=current.limits,
            admit=lambda: people.refresh(database),
        )
        self.inbound = InboundFlow(
            database,
            people,
            self.commands.keys(),
            self.dispatch.run,
            self.worker.wake,
            self.live,
            instance,
            failpoints,
            self.journal,
            self.outages,
            self.notices,
            clock,
        )
        self.gate = Gate(database, people, self.inbound.accept, self.notices, self.outbound, self.live)
        self.condition = Condition(
            environment,
            lambda: current.config,
            database,
            instance,
            self.cpu,
            self.doors,
            self.worker,
            self.notices,
            starts,
            clock,
        )
        self.condition.shed.extend([self.inbound.forget, self.homes.forget])

    def vitals(self) -> Vitals:
        """How the gateway is."""
        return replace(self.condition.vitals(), heartbeat=self.heartbeat.state)

    def _runners(
        self, environment: Environment, current: Current, database: Database, failpoints: Failpoints, clock: Clock
    ) -> Mapping[str, Runner]:
        """Who runs the tasks of each kind."""
        compacting = Compacting(
            database,
            current.summary_model,
            lambda: current.config.compaction.at_tokens,
            journals.close,
            self.live,
            failpoints,
        )
        answering = Answering(
            database,
            lambda: current.model,
            current.limits,
            self.homes,
            self.live,
            clock,
            failpoints,
            compacting,
        )
        turns = Turns(database, answering, self.homes, self.outbound, self.live, clock, failpoints, self.outages)
        scratch = environment.data / "ingest"
        reading = Reading(database, self.homes, self.cpu, scratch, current.hear, failpoints)
        ingest = Ingest(database, self._channel, self.uploads, reading, self._files_changed, clock, failpoints)
        describe = Describe(database, self.homes, current.summary_model, current.limits, clock)
        heartbeat = HeartbeatRun(
            database,
            answering,
            self.delivering,
            self.homes,
            current.heartbeat_model,
            lambda: current.config.heartbeat.to,
            self.halt,
            clock,
        )
        concluding = Concluding(
            database,
            self.homes,
            self.outbound,
            self.delivering,
            self.live,
            clock,
            failpoints,
            self._slot_is_over,
        )
        agent = AgentRun(database, self.people, answering, concluding, failpoints)
        return {"chat": turns, "agent": agent, "ingest": ingest, "describe": describe, "heartbeat": heartbeat}

    def _slot_is_over(self) -> None:
        self.scheduler.wake()

    def _channel(self, name: str) -> Channel | None:
        return self.outbound.channel(Address(name, "", ""))

    def _files_changed(self, session: SessionId, message: MessageId) -> None:
        self.live.publish(session, MessageStored(message))
        self.journal.rewrite(session)
