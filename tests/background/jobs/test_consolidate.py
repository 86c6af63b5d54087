"""The daily consolidation: what is merged, replaced and proposed, by whom, and when nobody is asked."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.limits import Limits
from gateway.background.upkeep.schedules import queue_consolidations
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.conversation.model import ModelsExhausted, Prompt, Reply, UserMessage
from gateway.domain.errors import RunLost
from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import Category, Kind, Memory, MemoryFilter, NewMemory
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Database
from gateway.store.memory import indexing, memories
from tests.flow.path import FakeModel, MessagePath, build, restarted
from tests.flow.path import said as reply


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


def shown(prompt: Prompt) -> dict[str, int]:
    """The numbers of the rows in a prompt, by their words."""
    text = prompt.messages[-1]
    assert isinstance(text, UserMessage)
    return {
        found[2]: int(found[1])
        for found in re.finditer(r"^(\d+) \w+ \S+ UTC (?:\[\w+\]|the \w+:) (.*)$", text.text, re.M)
    }


def judges(verdict: Callable[[dict[str, int]], dict[str, Any]]) -> FakeModel:
    return FakeModel(lambda prompt: reply(json.dumps(verdict(shown(prompt)))))


async def remember(path: MessagePath, text: str, **more: Any) -> Memory:
    async with path.database.transaction() as tx:
        new = NewMemory(text, **{"category": Category.FACT, "label": Label.OWNER, **more})
        return (await memories.add(tx, path.people.owner.id, new))[0]


async def a_day_later(path: MessagePath) -> None:
    """Turns are rows, words are counted, and it is time."""
    async with path.database.transaction() as tx:
        await indexing.index_turns(tx, None, 100)
        await tx.execute("insert into memory_stats (principal_id) select id from principals on conflict do nothing")
        await tx.execute("update memory_stats set consolidated_at = now() - interval '25 hours'")


async def consolidate(path: MessagePath) -> None:
    await a_day_later(path)
    await queue_consolidations(path.parts.core)
    while await path.rows("select from tasks where kind = 'consolidate' and status in ('pending', 'running')"):
        path.signals.tasks.set()
        await path.clock.sleep(0.02)


async def texts(path: MessagePath) -> list[str]:
    async with path.database.connection() as conn:
        which = MemoryFilter(at_most=Label.UNTRUSTED, kinds=(Kind.MEMORY,))
        return [row.text for row in await memories.listed(conn, path.people.owner.id, which, 50)]


async def got(path: MessagePath, id: MemoryId) -> Memory:
    async with path.database.connection() as conn:
        row = await memories.get(conn, path.people.owner.id, id)
    assert row is not None
    return row


def nothing(_: dict[str, int]) -> dict[str, Any]:
    return {"same": [], "replaced": [], "remember": []}


async def test_duplicates_become_one_with_all_that_is_known_of_both(database: Database, workspace: Path) -> None:
    model = judges(lambda ids: {"same": [[ids["Ada drinks green tea."], ids["Green tea is what Ada drinks."]]]})
    path = await build(database, workspace, FakeModel(), summaries=model)
    async with path.working():
        await path.ask("I drink green tea")
        (said,) = (await path.rows("select id from messages where kind = 'user'"))[0]
        old = await remember(path, "Green tea is what Ada drinks.", sources=(said,), importance=0.9, pinned=True)
        await remember(path, "Green tea is what Ada drinks.")
        kept = await remember(path, "Ada drinks green tea.", tags=("tea",))
        await consolidate(path)
        assert await texts(path) == ["Ada drinks green tea."]
        one = await got(path, kept.id)
        assert (one.seen_count, one.importance, one.pinned, one.tags, one.label) == (3, 0.9, True, ("tea",), 0)
        assert (await got(path, old.id)).superseded_by == kept.id
        for id in (old.id, kept.id):
            assert await path.rows("select message_id from memory_sources where memory_id = $1", id) == [(said,)]
        assert await path.rows("select count(*) from task_steps where kind = 'model' and name = 'fake'") == [(2,)]
    assert len(model.prompts) == 1


async def test_nobody_is_asked_when_nothing_is_new(database: Database, workspace: Path) -> None:
    model = judges(nothing)
    path = await build(database, workspace, FakeModel(), summaries=model)
    async with path.working():
        await remember(path, "Tea at five.")
        await consolidate(path)
        assert model.prompts == [], "one memory alone"
        await remember(path, "Tea at six.")
        await consolidate(path)
        assert len(model.prompts) == 1
        await consolidate(path)
        await consolidate(path)
        assert len(model.prompts) == 1
        await remember(path, "Tea at five.")
        await consolidate(path)
        assert len(model.prompts) == 1, "seen again is not new"
        await remember(path, "Tea at seven.")
        await consolidate(path)
        assert len(model.prompts) == 2
        assert shown(model.prompts[1]).keys() == {"Tea at five.", "Tea at six.", "Tea at seven."}
        assert await path.rows("select count(*) from tasks where kind = 'consolidate'") == [(3,)]


async def test_it_waits_for_a_day(database: Database, workspace: Path) -> None:
    model = judges(nothing)
    path = await build(database, workspace, FakeModel(), summaries=model)
    async with path.working():
        await path.ask("hello")
        await path.ask("I drink tea")
        await queue_consolidations(path.parts.core)
        assert await path.rows("select from tasks where kind = 'consolidate'") == []
        await a_day_later(path)
        await queue_consolidations(path.parts.core)
        await queue_consolidations(path.parts.core)
        assert len(await path.rows("select from tasks where kind = 'consolidate'")) == 1


async def test_the_newer_replaces_and_what_is_not_sure_is_for_the_person_to_say(
    database: Database, workspace: Path
) -> None:
    def verdict(ids: dict[str, int]) -> dict[str, Any]:
        names = [("The dentist is on Tuesday.", "The dentist is on Friday."), ("Bob drinks tea.", "Bob drinks coffee.")]
        pairs = [(ids[old], ids[new]) for old, new in names]
        return {"replaced": [{"old": old, "new": new, "sure": old == pairs[0][0]} for old, new in pairs]}

    path = await build(database, workspace, FakeModel(), summaries=judges(verdict))
    async with path.working():
        tuesday = await remember(path, "The dentist is on Tuesday.")
        tea = await remember(path, "Bob drinks tea.")
        friday = await remember(path, "The dentist is on Friday.")
        coffee = await remember(path, "Bob drinks coffee.")
        await consolidate(path)
        assert (await got(path, tuesday.id)).superseded_by == friday.id
        assert (await got(path, tea.id)).superseded_by is None
        told = await path.ask("/memory")
        assert f"/memory keep NUMBER accepts one:\n{coffee.id}: [fact] Bob drinks coffee." in told
        assert f"instead of {tea.id}: [fact] Bob drinks tea." in told
        assert (await path.ask(f"/memory keep {coffee.id}")).startswith(f"Kept, instead of {tea.id}: {coffee.id}:")
        assert (await got(path, tea.id)).superseded_by == coffee.id
        assert "instead of" not in await path.ask("/memory")


async def test_what_was_said_is_proposed_and_only_kept_by_a_yes(database: Database, workspace: Path) -> None:
    def verdict(ids: dict[str, int]) -> dict[str, Any]:
        of = [next(id for text, id in ids.items() if "piano" in text)]
        texts = ("Berta plays the piano.", "Ada has a piano.")
        return {"remember": [{"text": text, "category": "person", "from": of} for text in texts]}

    model = judges(verdict)
    path = await build(database, workspace, FakeModel(), summaries=model)
    async with path.working():
        await path.ask("Berta came by and plays the piano now")
        await consolidate(path)
        assert await texts(path) == []
        assert "[person]" not in await path.ask("/memory piano")
        told = await path.ask("/memory")
        [(berta, label), (ada, _)] = await path.rows("select id, label from memories where kind = 'memory' order by id")
        assert told.startswith("Proposed; /memory keep NUMBER accepts one:\n" + f"{berta}: [person] Berta plays the")
        assert label == Label.OWNER
        assert (await path.ask(f"/memory keep {berta}")).startswith(f"Kept: {berta}: [person] Berta plays")
        assert await texts(path) == ["Berta plays the piano."]
        sources = await path.rows("select text from memory_sources s join messages m on m.id = s.message_id")
        assert {text for (text,) in sources} == {"Berta came by and plays the piano now"}
        await path.ask("the piano is out of tune")
        await consolidate(path)
        assert len(await path.rows("select from memories where kind = 'memory'")) == 2, "nothing is proposed twice"
        await database.run(lambda tx: tx.execute("update memories set created_at = now() - interval '8 days'"))
        assert "Proposed" not in await path.ask("/memory")
        assert "There is no forgotten memory 9999" in await path.ask("/memory keep 9999")
        assert (await got(path, ada)).forgotten_at


async def test_untrusted_words_are_not_shown_and_known_ones_decide_about_nothing_of_the_owners(
    database: Database, workspace: Path
) -> None:
    def verdict(ids: dict[str, int]) -> dict[str, Any]:
        pairs = [(old, new) for old in ids.values() for new in ids.values() if old < new]
        if not any("imported" in text for text in ids):
            return nothing(ids)
        tea = [ids[text] for text in ("Tea is imported.", "Tea is what Ada drinks.", "Tea is drunk by Ada.")]
        return {"same": [tea], "replaced": [{"old": old, "new": new, "sure": True} for old, new in pairs]}

    model = judges(verdict)
    path = await build(database, workspace, FakeModel(), summaries=model)
    async with path.working():
        await remember(path, "Tea is what Ada drinks.")
        await remember(path, "Tea is drunk by Ada.")
        await remember(path, "Tea is poison, says a page.", label=Label.UNTRUSTED)
        await remember(path, "Tea is poison, says a token.", label=Label.UNTRUSTED, agent="coder")
        await remember(path, "Tea is imported.", label=Label.KNOWN)
        before = await path.rows("select m::text from memories m where label <> 1 order by id")
        await path.ask("read this about tea poison", forwarded="Eve")
        await consolidate(path)
        assert [len(shown(prompt)) for prompt in model.prompts] == [2, 3]
        assert "poison" not in repr(model.prompts)
        assert (
            await path.rows("select m::text from memories m where label <> 1 and kind = 'memory' order by id") == before
        )
        assert "Tea is imported." in await texts(path), "and nothing trusted more was merged into it"


async def test_nothing_trusted_less_counts_for_what_replaces_it(database: Database, workspace: Path) -> None:
    model = judges(lambda ids: {"same": [[ids[t] for t in ("Ada drinks tea.", "Tea is drunk by Ada.") if t in ids]]})
    path = await build(database, workspace, FakeModel(), summaries=model)
    async with path.working():
        old = await remember(path, "Tea is drunk by Ada.", label=Label.KNOWN, importance=1.0, pinned=True)
        kept = await remember(path, "Ada drinks tea.")
        await consolidate(path)
        assert (await got(path, old.id)).superseded_by == kept.id
        assert (await got(path, kept.id)) == kept


@pytest.mark.parametrize("why", ["budget", "model"])
async def test_where_nobody_may_or_can_be_asked_it_is_for_tomorrow(
    database: Database, workspace: Path, why: str
) -> None:
    calls: list[Prompt] = []

    def answer(prompt: Prompt) -> Reply | Exception:
        calls.append(prompt)
        return ModelsExhausted("none", ()) if why == "model" and len(calls) == 1 else reply(json.dumps(nothing({})))

    path = await build(database, workspace, FakeModel(), summaries=FakeModel(answer))
    async with path.working():
        await remember(path, "Tea at five.")
        await remember(path, "Tea at six.")
        if why == "budget":
            await path.ask("hello")
            path.current.bounds = Limits(day_usd=0.0005)
        await consolidate(path)
        assert len(calls) == (why == "model")
        assert await path.rows("select status from tasks where kind = 'consolidate'") == [("completed",)]
        if why == "budget":
            path.current.bounds = Limits()
        await consolidate(path)
        assert len(calls) == 1 + (why == "model")
        await consolidate(path)
        assert len(calls) == 1 + (why == "model")


async def test_what_a_person_changes_meanwhile_stays_as_they_left_it(database: Database, workspace: Path) -> None:
    path = await build(database, workspace, FakeModel(), summaries=None)
    async with path.working():
        old, new = await remember(path, "Tea is drunk by Ada."), await remember(path, "Ada drinks tea.")

    as_of = (await path.rows("select now()"))[0][0]
    async with database.transaction() as tx:
        await memories.edit(tx, path.people.owner.id, old.id, text="Ada drinks coffee.")
    async with database.transaction() as tx:
        assert not await memories.supersede(tx, path.people.owner.id, old.id, new.id, Label.OWNER, as_of)
        await memories.forget(tx, path.people.owner.id, new.id)
        assert not await memories.supersede(tx, path.people.owner.id, old.id, new.id, Label.OWNER)


class Killed(Failpoints):
    """Ends the run where the process would be killed."""

    def reach(self, step: Step) -> None:
        if step is Step.MEMORY_JUDGED:
            raise asyncio.CancelledError


async def test_killed_in_the_middle_it_goes_on_and_merges_once(database: Database, workspace: Path) -> None:
    model = judges(lambda ids: {"same": [[ids["Ada drinks tea."], ids["Tea is drunk by Ada."]]]})
    path = await build(database, workspace, FakeModel(), summaries=model, failpoints=Killed(None))
    await remember(path, "Tea is drunk by Ada.")
    kept = await remember(path, "Ada drinks tea.")
    await a_day_later(path)
    await queue_consolidations(path.parts.core)
    with pytest.raises(asyncio.CancelledError):
        await path.runners["consolidate"].run(await path.claim(Lane.AGENTS))
    assert (await got(path, kept.id)).seen_count == 1

    path = await restarted(path)
    path.current.summaries = model
    run = await path.claim(Lane.AGENTS)
    await path.runners["consolidate"].run(run)
    with pytest.raises(RunLost):
        await path.runners["consolidate"].run(run)
    assert (await got(path, kept.id)).seen_count == 2
    assert await path.rows("select status from tasks where kind = 'consolidate'") == [("completed",)]
