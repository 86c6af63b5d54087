"""`heartbeat`: the agent looks for news by itself; the owner only gets messages that are worth it."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from gateway.agent.work.heartbeat import NO_MODEL, Occasion, heartbeat_prompt, news_in, outcome_of
from gateway.background.jobs import OUT_OF_ATTEMPTS, JobParts
from gateway.background.upkeep.heartbeat import HeartbeatHalt
from gateway.domain.conversation.model import ModelsExhausted
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.health import HeartbeatOutcome
from gateway.domain.principals import Label
from gateway.domain.text.marks import heading
from gateway.domain.work.schedules import UTC_ZONE
from gateway.domain.work.tasks import Claim, Status, TurnResult
from gateway.flow.engine import Engine
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.loop import SizedModel
from gateway.flow.turn.opening import OpenedTurn, PromptOpening
from gateway.flow.turn.runner import AgentParts, RunOutcome
from gateway.llm.errors import ErrorKind
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.people import principals
from gateway.store.transcript import journals, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import heartbeats, tasks
from gateway.workspace.journal.files import heartbeat_paths

ORIGIN = "heartbeat"
NO_MODEL_RESULT = TurnResult(Notice(NO_MODEL), status=Status.FAILED, error=NO_MODEL)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a run; `stops` if the next heartbeat would fail as well."""

    outcome: HeartbeatOutcome
    text: str = ""
    stops: bool = False

    @property
    def notice(self) -> str:
        """The notice to the owner about a failure."""
        if self.stops:
            return f"The heartbeat has stopped: {self.text}. `supaclaw heartbeat` runs one now."
        return f"The heartbeat failed: {self.text}. The next one will retry; /status shows how it goes."


@dataclass(slots=True)
class HeartbeatRun:
    """The runner of `heartbeat` tasks."""

    engine: Engine
    agents: AgentParts
    proactive: ProactiveMessages
    model: Callable[[], SizedModel | None]
    halt: HeartbeatHalt
    channel: Callable[[], str | None]

    async def run(self, run: Claim) -> None:
        """Ask the agent, and tell the owner if there is news; raises `RunLost`."""
        await self.agents.file_sync.before_run(run.principal_id)
        occasion, opened = await self._open(run)
        if opened is None:
            return
        model = self.model()
        runner = self.agents.runner
        result = await runner.answer(await runner.begin(opened), model=model) if model else NO_MODEL_RESULT
        await self.agents.file_sync.after_turn(run.principal_id)
        await self._finish(occasion, opened, judge(result), result)

    async def give_up(self, run: Claim) -> None:
        """End the heartbeat as failed, because the attempts are used up."""
        occasion, opened = await self._open(run)
        if opened is not None:
            why = f"{run.max_attempts} attempts broke off; the log says why, under task {run.id}"
            result = TurnResult(Notice(why), status=Status.FAILED, error=OUT_OF_ATTEMPTS)
            await self._finish(occasion, opened, Verdict(HeartbeatOutcome.FAILED, why), result)

    async def _open(self, run: Claim) -> tuple[Occasion, OpenedTurn | None]:
        """Open the heartbeat's own session, with its own journal file."""
        now, zone = self.engine.clock.now(), self.agents.environments.of(run.principal_id).zone() or UTC_ZONE

        async def work(tx: Connection) -> tuple[Occasion, OpenedTurn | None]:
            occasion = Occasion.model_validate(await tasks.payload(tx, run.id))
            asked = heartbeat_prompt(occasion.concerns, now, zone, (await principals.get(tx, run.principal_id)).name)
            opening = PromptOpening(
                run=run, prompt=asked, label=occasion.label, origin=ORIGIN, heartbeat=True, private=True
            )
            opened = await opening.open(tx)
            if opened is not None:
                for path in heartbeat_paths(occasion.at):
                    if await journals.begin(tx, opened.session, run.principal_id, path):
                        break
            return occasion, opened

        return await self.engine.database.run(work)

    async def _finish(self, occasion: Occasion, opened: OpenedTurn, verdict: Verdict, result: TurnResult) -> None:
        async def destination(tx: Connection) -> AddressRow | None:
            if verdict.outcome not in (HeartbeatOutcome.TOLD, HeartbeatOutcome.FAILED):
                return None
            return await self.proactive.destination(tx, opened.principal.id, channel=self.channel())

        async def store(tx: Connection, answer: MessageRow, at: AddressRow | None) -> RunOutcome:
            """Store the message to the owner, the end of the session, and the pulse."""
            news = await self._news(tx, verdict)
            sent = await self._tell(tx, at, news, answer) if news else None
            await sessions.end(tx, answer.session_id)
            await journals.close(tx, answer.session_id, f"Heartbeat: {verdict.outcome.value}")
            await heartbeats.ended(tx, verdict.outcome, verdict.text, occasion.at)
            error = verdict.text if verdict.outcome in (HeartbeatOutcome.FAILED, HeartbeatOutcome.SKIPPED) else None
            return RunOutcome(Status.FAILED if error else Status.COMPLETED, error, sent)

        finished = await self.agents.finisher.finish(opened, result, store, destination)
        note = log.warning if verdict.outcome is HeartbeatOutcome.FAILED else log.info
        note("heartbeat.ended", outcome=verdict.outcome.value, told=finished.sent is not None, stops=verdict.stops)
        if verdict.stops:
            self.halt.stop(verdict.text)
        elif verdict.outcome in (HeartbeatOutcome.OK, HeartbeatOutcome.TOLD):
            self.halt.lift()

    async def _news(self, tx: Connection, verdict: Verdict) -> AssistantText | Notice | None:
        """The message to the owner, if any; of failures, only the first, and the one that stops heartbeats."""
        if verdict.outcome is HeartbeatOutcome.TOLD:
            return AssistantText(verdict.text)
        if verdict.outcome is not HeartbeatOutcome.FAILED:
            return None
        pulse = await heartbeats.get(tx)
        known = pulse is not None and pulse.failing and not (verdict.stops and self.halt.reason is None)
        return None if known else Notice(verdict.notice)

    async def _tell(
        self, tx: Connection, at: AddressRow | None, news: AssistantText | Notice, answer: MessageRow
    ) -> MessageRow | None:
        if at is None:
            log.warning("heartbeat.nobody_to_tell", hint="write to the agent once, on any channel")
            return None
        label, top = answer.label, heading(ORIGIN, answer.label, Label.OWNER)
        return await self.proactive.say(tx, at, answer.principal_id, news, label=label, origin=ORIGIN, heading=top)


def judge(result: TurnResult) -> Verdict:
    """The verdict on the result of a turn."""
    if result.problem is not None:
        return _failed(result.problem)
    if isinstance(result.entry, Notice):
        return Verdict(HeartbeatOutcome.SKIPPED, result.error or result.entry.text)
    went, empty = outcome_of(result.entry.text), "the model gave an empty answer"
    told = {HeartbeatOutcome.TOLD: news_in(result.entry.text), HeartbeatOutcome.FAILED: empty}
    return Verdict(went, told.get(went, ""))


def _failed(problem: ModelsExhausted) -> Verdict:
    """The verdict on a failure; a refused key stops heartbeats, since it would be refused again."""
    last = problem.attempts[-1]
    if all(attempt.error == ErrorKind.AUTH for attempt in problem.attempts):
        models = ", ".join(dict.fromkeys(attempt.model for attempt in problem.attempts))
        why = f"the key for {models} was refused; set a good one and save config.json, or restart"
        return Verdict(HeartbeatOutcome.FAILED, why, stops=True)
    return Verdict(HeartbeatOutcome.FAILED, f"no model answered (the last was {last.model}: {last.error})")


def runner(parts: JobParts) -> HeartbeatRun:
    """The runner of `heartbeat` tasks."""
    proactive, model = parts.delivery.proactive, parts.models.heartbeat
    return HeartbeatRun(parts.engine, parts.agents, proactive, model, parts.halt, parts.heartbeat_channel)
