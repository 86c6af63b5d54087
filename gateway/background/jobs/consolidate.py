"""`consolidate`: once a day, a model tidies the new entries in a person's memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from gateway.agent.memory.search import recall_limit
from gateway.background.budgets import BackgroundModel
from gateway.background.jobs import OUT_OF_ATTEMPTS, Job, JobParts
from gateway.config.failpoints import Step
from gateway.domain.conversation.model import Reply
from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.memories import Kind
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Status
from gateway.memory.consolidation import (
    ConsolidationVerdict,
    ShownMemories,
    consolidation_prompt,
    fitting_material,
    read_verdict,
)
from gateway.store.connection.pool import Connection
from gateway.store.memory import consolidation, memories
from gateway.store.memory.consolidation import ConsolidationInput
from gateway.store.people import principals
from gateway.store.work import tasks

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Judged:
    material: ShownMemories
    reply: Reply
    verdict: ConsolidationVerdict


@dataclass(slots=True)
class Consolidate(Job):
    """Asks once for each label, so that a text only decides about memories that are trusted no more than itself."""

    model: BackgroundModel

    async def run(self, run: Claim) -> None:
        """Merge, replace and propose memories and record the progress, all or nothing; raises `RunLost`."""
        async with self.engine.database.connection() as conn:
            at_most = recall_limit((await principals.get(conn, run.principal_id)).role, Label.UNTRUSTED)
            changed = await consolidation.changed(conn, run.principal_id, at_most)
            materials = [await _material(conn, run.principal_id, changed, label) for label in Label if label <= at_most]
        asked = [material for material in materials if material.rows]
        judged = [one for material in asked if (one := await self._judged(run, material))]
        self.engine.failpoints.reach(Step.MEMORY_JUDGED)

        async def store(tx: Connection) -> None:
            await _apply(tx, run.principal_id, judged, changed)
            await consolidation.done(tx, run.principal_id, changed.upto if len(judged) == len(asked) else None)

        await self.complete(run, [one.reply for one in judged], store)

    async def give_up(self, run: Claim) -> None:
        """End the task as failed; tomorrow's task tries again."""

        async def store(tx: Connection) -> None:
            await consolidation.done(tx, run.principal_id, None)
            await tasks.finish(tx, run, Status.FAILED, error=OUT_OF_ATTEMPTS)

        await self.engine.database.run(store)

    async def _judged(self, run: Claim, material: ShownMemories) -> _Judged | None:
        if (model := self.model.connected()) is None:
            return None
        shown = fitting_material(material, model.prompt_budget())
        reply = await self.model.ask(model, consolidation_prompt(shown), run)
        return _Judged(shown, reply, read_verdict(reply.text, shown)) if reply else None


async def _material(
    conn: Connection, principal: PrincipalId, changed: ConsolidationInput, label: Label
) -> ShownMemories:
    """The material that is trusted up to `label`; empty if there is no question to ask about it."""
    said = [row for row in changed.said if row.label == label]
    new = [row for row in changed.memories if row.label <= label]
    rows = await consolidation.near(conn, principal, [*new, *said], label)
    facts = [row for row in rows if row.kind is Kind.MEMORY]
    asks = said or (len(facts) > 1 and any(row.label == label for row in facts))
    return ShownMemories(label, rows if asks else ())


async def _apply(
    tx: Connection, principal: PrincipalId, judged: Sequence[_Judged], changed: ConsolidationInput
) -> None:
    """Apply the verdicts; the person decides on unsure ones and on those beyond this label."""
    doubts: dict[MemoryId, MemoryId] = {}
    for one in judged:
        label, labels = one.material.label, {row.id: row.label for row in one.material.rows}
        for kept, *others in one.verdict.same:
            for same in others:
                await consolidation.merge(tx, principal, same, kept, label, changed.as_of)
        for pair in one.verdict.replaced:
            done = pair.sure and await memories.supersede(tx, principal, pair.old, pair.new, label, changed.as_of)
            if not done and labels[pair.new] <= labels[pair.old]:
                doubts[pair.old] = pair.new
        for new in one.verdict.proposals:
            await consolidation.propose(tx, principal, new)
    await consolidation.doubt(tx, principal, doubts)
    log.info("memory.consolidated", calls=len(judged), doubts=len(doubts))


def runner(parts: JobParts) -> Consolidate:
    """The runner of `consolidate` tasks."""
    return Consolidate(parts.engine, parts.models.cheap)
