"""`heartbeat`: the agent looks around by itself; only what is worth a word is told."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from gateway.agent.scheduling.heartbeat import NO_MODEL, Occasion, outcome, prompt
from gateway.background.scheduling.halt import Halt
from gateway.domain.clock import Clock
from gateway.domain.ids import PrincipalId
from gateway.domain.model import ModelsExhausted
from gateway.domain.principals import Label
from gateway.domain.schedules import UTC_ZONE
from gateway.domain.tasks import Claim, Status
from gateway.domain.texts import storable
from gateway.domain.transcript import AssistantText, Notice
from gateway.domain.vitals import Outcome
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.turn.open import OpenedTurn, open_alone
from gateway.flow.turn.runner import TurnResult, TurnRunner
from gateway.flow.turn.wiring import SizedModel
from gateway.llm.errors import ErrorKind
from gateway.store import sessions, tasks
from gateway.store.people import principals
from gateway.store.pool import Connection, Database
from gateway.store.scheduling import heartbeats
from gateway.store.transcript import journals, messages
from gateway.store.transcript.messages import MessageRow
from gateway.workspace.journal import files
from gateway.workspace.journal.files import Place
from gateway.workspace.paths import WorkspaceError

ORIGIN = "heartbeat"
FILE = "sessions/heartbeat/%Y-%m-%d/%H-%M.md"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run came to; `stops`: the next one would fail as well."""

    outcome: Outcome
    text: str = ""
    stops: bool = False

    @property
    def notice(self) -> str:
        """For the owner, when it failed."""
        if self.stops:
            return f"The heartbeat has stopped: {self.text}. `supaclaw heartbeat` tries one now."
        return f"The heartbeat failed: {self.text}. The next one tries again; /status tells how that goes."


class HeartbeatRun:
    """The runner; `model` is None where none is connected, `to` is the channel that is configured to be told."""

    def __init__(
        self,
        database: Database,
        runner: TurnRunner,
        proactive: ProactiveMessages,
        environments: AgentEnvironments,
        model: Callable[[], SizedModel | None],
        to: Callable[[], str | None],
        halt: Halt,
        clock: Clock,
    ) -> None:
        self._database = database
        self._runner = runner
        self._proactive = proactive
        self._environments = environments
        self._model = model
        self._to = to
        self._halt = halt
        self._clock = clock

    async def run(self, run: Claim) -> None:
        """Ask, keep the answer, tell it if it is news; raises `RunLost`."""
        occasion, model = await self._occasion(run), self._model()
        if model is None:
            await self._end(run, occasion, Verdict(Outcome.SKIPPED, NO_MODEL))
            return
        opened = await self._opened(run, occasion)
        if opened is None:
            return
        said = await self._runner.answer(run, opened, model=model)
        verdict = judge(said)
        if verdict.outcome is not Outcome.SKIPPED:
            await self._keep(run.principal_id, occasion.at, verdict.outcome, said.entry.text)
        await self._end(run, occasion, verdict, said)

    async def give_up(self, run: Claim) -> None:
        """Out of attempts."""
        occasion = await self._occasion(run)
        why = f"{run.max_attempts} attempts broke off; the log says why, under task {run.id}"
        await self._end(run, occasion, Verdict(Outcome.FAILED, why))

    async def _occasion(self, run: Claim) -> Occasion:
        async with self._database.connection() as conn:
            return Occasion.model_validate(await tasks.payload(conn, run.id))

    async def _opened(self, run: Claim, occasion: Occasion) -> OpenedTurn | None:
        now, zone = self._clock.now(), self._environments.of(run.principal_id).zone() or UTC_ZONE

        async def work(tx: Connection) -> OpenedTurn | None:
            name = (await principals.get(tx, run.principal_id)).name
            asked = prompt(occasion.concerns, now, zone, name)
            return await open_alone(tx, run, asked, label=occasion.label, origin=ORIGIN, heartbeat=True)

        return await self._database.run(work)

    async def _keep(self, principal: PrincipalId, at: datetime, went: Outcome, text: str) -> None:
        """Where the agent can read it. It is in the database all the same, so a full disk stops nothing."""
        place = Place(self._environments.of(principal).workspace.root, at.astimezone(UTC).strftime(FILE))
        entry = f"## {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: {went.value}\n\n{text.strip()}\n"
        try:
            await asyncio.to_thread(_append, place, entry)
        except (OSError, WorkspaceError) as exc:
            log.warning("heartbeat.not_kept", path=place.path, error=str(exc))

    async def _end(self, run: Claim, occasion: Occasion, verdict: Verdict, said: TurnResult | None = None) -> None:
        told = await self._database.run(lambda tx: self._store(tx, run, occasion, verdict, said))
        note = log.warning if verdict.outcome is Outcome.FAILED else log.info
        note("heartbeat.ended", outcome=verdict.outcome.value, told=told is not None, stops=verdict.stops)
        if told is not None:
            self._proactive.told(told)
        if verdict.stops:
            self._halt.stop(verdict.text)
        elif verdict.outcome in (Outcome.OK, Outcome.TOLD):
            self._halt.lift()

    async def _store(
        self, tx: Connection, run: Claim, occasion: Occasion, verdict: Verdict, said: TurnResult | None
    ) -> MessageRow | None:
        """One transaction: what is told, the answer in a session that ends with it, the task's end, the pulse."""
        assert run.session_id is not None, "it was queued with one"
        label = await sessions.label(tx, run.session_id)
        news = await self._news(tx, verdict)
        told = await self._tell(tx, run.principal_id, news, label) if news else None
        await sessions.lock(tx, run.session_id)
        await tasks.hold(tx, run)
        if said is None:
            await messages.close(tx, run.session_id)
        else:
            await said.store(tx, run, run.session_id, label=label)
        await sessions.end(tx, run.session_id)
        await journals.close(tx, run.session_id, f"Heartbeat: {verdict.outcome.value}")
        error = verdict.text if verdict.outcome in (Outcome.FAILED, Outcome.SKIPPED) else None
        await tasks.finish(tx, run, Status.FAILED if error else Status.COMPLETED, error=error)
        await heartbeats.ended(tx, verdict.outcome, verdict.text, occasion.at)
        return told

    async def _news(self, tx: Connection, verdict: Verdict) -> AssistantText | Notice | None:
        """What the owner is to know: of failures the first, and the one that stops it."""
        if verdict.outcome is Outcome.TOLD:
            return AssistantText(verdict.text)
        if verdict.outcome is not Outcome.FAILED:
            return None
        pulse = await heartbeats.get(tx)
        known = pulse is not None and pulse.failing and not (verdict.stops and self._halt.why is None)
        return None if known else Notice(verdict.notice)

    async def _tell(
        self, tx: Connection, principal: PrincipalId, news: AssistantText | Notice, label: Label
    ) -> MessageRow | None:
        at = await self._proactive.destination(tx, principal, channel=self._to())
        if at is None:
            log.warning("heartbeat.nobody_to_tell", hint="it is kept; write to the agent once, on any channel")
            return None
        return await self._proactive.say(tx, at, principal, news, label=label, origin=ORIGIN)


def judge(said: TurnResult) -> Verdict:
    """What the end of a run means."""
    if said.problem is not None:
        return _failed(said.problem)
    if isinstance(said.entry, Notice):
        return Verdict(Outcome.SKIPPED, said.error or said.entry.text)
    went = outcome(said.entry.text)
    return Verdict(
        went, {Outcome.TOLD: said.entry.text, Outcome.FAILED: "the model gave an empty answer"}.get(went, "")
    )


def _failed(problem: ModelsExhausted) -> Verdict:
    """A key that is refused now is refused the next time."""
    last = problem.attempts[-1]
    if all(attempt.error == ErrorKind.AUTH for attempt in problem.attempts):
        models = ", ".join(dict.fromkeys(attempt.model for attempt in problem.attempts))
        why = f"the key for {models} was refused; set a good one and save config.json, or restart"
        return Verdict(Outcome.FAILED, why, stops=True)
    return Verdict(Outcome.FAILED, f"no model answered (the last was {last.model}: {last.error})")


def _append(place: Place, text: str) -> None:
    """The old file or the whole new one, whatever happens."""
    before = files.read(place)
    files.replace(place, (before + b"\n" if before else b"") + storable(text).encode())
