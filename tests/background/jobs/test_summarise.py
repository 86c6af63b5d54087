"""What becomes of a conversation that ends."""

from pathlib import Path

import pytest

from gateway.domain.conversation.model import ModelsExhausted, SystemMessage
from gateway.domain.memory.memories import Kind, Memory, MemoryFilter
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.store.memory import memories
from tests.flow.path import FakeModel, MessagePath, build, call, in_turn, said

REPLY = """## Goal
Plan the move to Lisbon.
## Decisions
The flat in Alfama.
## Open threads
Who takes the piano?
## Worth remembering
- Berta plays the piano"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


async def ended(path: MessagePath, *texts: str) -> None:
    """Say these, end the conversation, and wait until that has been dealt with."""
    for text in texts:
        await path.ask(text)
    await path.ask("/new")
    while await path.rows("select from tasks where kind = 'summarise' and status in ('pending', 'running')"):
        path.signals.tasks.set()
        await path.clock.sleep(0.02)


async def kept(path: MessagePath, kind: Kind) -> list[Memory]:
    async with path.database.connection() as conn:
        which = MemoryFilter(kinds=(kind,), at_most=Label.UNTRUSTED)
        return await memories.listed(conn, path.people.owner.id, which, 10)


async def test_its_summary_and_facts_are_remembered_and_told_to_the_next(database: Database, workspace: Path) -> None:
    summaries = FakeModel(lambda _: said(REPLY))
    path = await build(database, workspace, FakeModel(), summaries=summaries)
    async with path.working():
        await ended(path, "we move to Lisbon", "the flat in Alfama it is")
        await path.ask("hello")
    [summary], [fact] = await kept(path, Kind.SUMMARY), await kept(path, Kind.MEMORY)
    assert summary.text == "Plan the move to Lisbon. Decided: The flat in Alfama. Open: Who takes the piano?"
    assert (fact.text, fact.label, fact.origin) == ("Berta plays the piano", Label.OWNER, "summary")
    assert await path.rows("select count(*) from memory_sources where memory_id = $1", fact.id) == [(4,)]
    [system, *_] = path.model.prompts[-1].messages
    assert isinstance(system, SystemMessage)
    assert f"): {summary.text}\n\n## Key Memories\n- [fact] Berta plays the piano (importance: 0.5)" in system.text
    assert len(summaries.prompts) == 1


async def test_one_question_costs_no_model(database: Database, workspace: Path) -> None:
    summaries = FakeModel(lambda _: said(REPLY))
    path = await build(database, workspace, FakeModel(), summaries=summaries)
    async with path.working():
        await ended(path, "what time is it?")
    assert (summaries.prompts, await kept(path, Kind.SUMMARY)) == ([], [])


async def test_rules_make_it_where_no_model_answers(database: Database, workspace: Path) -> None:
    summaries = FakeModel(lambda _: ModelsExhausted("none", ()))
    path = await build(database, workspace, FakeModel(), summaries=summaries)
    async with path.working():
        await ended(path, "we move to Lisbon", "and the piano?")
    [summary] = await kept(path, Kind.SUMMARY)
    assert summary.text == "we move to Lisbon Open: - Asked: and the piano?"


async def test_what_was_forgotten_is_neither_summarised_nor_learned_again(database: Database, workspace: Path) -> None:
    summaries = FakeModel(lambda _: said(REPLY))
    path = await build(database, workspace, FakeModel(), summaries=summaries)
    async with path.working():
        await path.ask("/remember Berta plays the piano")
        await path.ask("Berta plays the piano, did I tell you?")
        assert "A1" in await path.ask("/memory forget 1")
        await path.ask("/approve A1")
        await path.settled()
        await ended(path, "we move to Lisbon", "the flat in Alfama it is")
    assert "piano" not in repr(summaries.prompts)
    assert await kept(path, Kind.MEMORY) == []


async def test_nothing_is_learned_from_what_was_recalled(database: Database, workspace: Path) -> None:
    summaries = FakeModel(lambda _: said(REPLY))
    model = FakeModel(in_turn(said("", call("memory_search", query="safe")), said("I know"), said("yes")))
    path = await build(database, workspace, model, summaries=summaries)
    async with path.working():
        await path.ask("/remember The safe has the code 4711")
        await ended(path, "how do I open it?", "thanks")
    assert "4711" in repr(model.prompts)
    assert "4711" not in repr(summaries.prompts)


async def test_what_comes_of_untrusted_words_is_untrusted_and_not_told(database: Database, workspace: Path) -> None:
    path = await build(database, workspace, FakeModel(), summaries=FakeModel(lambda _: said(REPLY)))
    async with path.working():
        await path.ask("read this", forwarded="Eve")
        await ended(path, "and that")
        await path.ask("hello")
    assert {row.label for kind in (Kind.SUMMARY, Kind.MEMORY) for row in await kept(path, kind)} == {Label.UNTRUSTED}
    assert "Lisbon" not in repr(path.model.prompts[-1])
    assert "piano" not in repr(path.model.prompts[-1])
