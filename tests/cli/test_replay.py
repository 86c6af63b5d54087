"""Days of the past, put to another model over real HTTP; what its calls get is what they got then."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.store.transcript import sessions
from tests.cli.conftest import Done, Supaclaw
from tests.fakes.openai_server import Call, FakeModels, Rule

ENTRIES = """
  insert into messages (session_id, principal_id, seq, kind, text, label, origin, final, call_id, tool, task_id,
                        ordinal, sent_at, created_at, closed_at)
  select $1, $2, seq, kind, text, 0, 'web', true, call, tool, $3, case when call is not null then 0 end,
    '2026-03-01 12:00Z', '2026-03-01 12:00Z', now()
  from (values (1, 'user', 'How warm is it in Lisbon?', null, null),
               (2, 'tool_intent', '{"city": "Lisbon"}', 'c1', 'weather'),
               (3, 'tool_result', '{"celsius": 21}', 'c1', 'weather'),
               (4, 'assistant', '21 degrees.', null, null)) as t (seq, kind, text, call, tool)"""


@pytest.fixture
def day(dsn: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day with one turn, in which a tool was called."""
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    assert place.exists()

    async def said() -> None:
        async with await Database.connect(dsn) as database, database.transaction() as tx:
            owner = await principals.add(tx, Role.OWNER, "Ada", [])
            session = await sessions.start(tx, owner, Label.OWNER)
            task = await tx.fetchval("select gen_random_uuid()")
            await tx.execute(ENTRIES, session, owner, task)
            await tx.execute("update sessions set started_at = '2026-03-01 12:00Z', spoken_at = '2026-03-01 12:00Z'")

    asyncio.run(said())


async def replayed(supaclaw: Supaclaw, place: Path, *more: str, rules: tuple[Rule, ...]) -> tuple[Done, FakeModels]:
    async with FakeModels(*rules) as models:
        config = {"models": {"providers": {"openai": {"base_url": models.base_url}}}}
        (place / "config.json").write_text(json.dumps(config))
        arguments = ("replay", "--from", "2026-03-01", "--model", "openai/gpt-4o-mini", *more)
        return await asyncio.to_thread(supaclaw, *arguments), models


async def test_the_same_calls_get_the_results_of_then_and_other_calls_are_told_so(
    supaclaw: Supaclaw, place: Path, day: None
) -> None:
    (place / "ours.md").write_text("Speak like a sailor.")
    same = Rule("Lisbon", tool_calls=(Call("weather", {"city": "Lisbon"}),), times=1)
    done, models = await replayed(
        supaclaw, place, "--yes", "--agents", "ours.md", rules=(same, Rule(text="It is 21.", after_tools=True))
    )

    assert (done.code, done.err) == (0, "")
    assert "1 turns; the same calls in 1;" in done.out
    assert "> 21 degrees." in done.out
    assert "> It is 21." in done.out
    last = models.asked[-1].body
    assert "Speak like a sailor." in json.dumps(last["messages"][0])
    assert last["messages"][-1]["content"] == '{"celsius": 21}'
    assert last["temperature"] == 0
    assert [tool["function"]["name"] for tool in last["tools"]] == ["weather"]

    other = Rule("Lisbon", tool_calls=(Call("weather", {"city": "Porto"}),), times=1)
    done, models = await replayed(supaclaw, place, "--yes", rules=(other, Rule(text="No idea.", after_tools=True)))
    assert "the same calls in 0;" in done.out
    assert "not_recorded" in models.asked[-1].body["messages"][-1]["content"]


async def test_a_provider_that_has_not_seen_them_is_asked_about_and_nothing_is_stored(
    supaclaw: Supaclaw, place: Path, day: None, dsn: str
) -> None:
    refused, models = await replayed(supaclaw, place, rules=())

    assert refused.code == 1
    assert "openai/gpt-4o-mini has not seen these conversations; add --yes" in refused.err
    assert not models.asked
    empty = await asyncio.to_thread(supaclaw, "replay", "--from", "2020-01-01", "--model", "openai/mini")
    assert "there are no answered turns of yours in this time" in empty.err
    spent, models = await replayed(supaclaw, place, "--yes", "--budget", "0", rules=())
    assert "Not answered: the budget is used up" in spent.out
    assert not models.asked
    async with await Database.connect(dsn) as database, database.connection() as conn:
        assert await conn.fetchval("select count(*) from messages") == 4
        assert await conn.fetchval("select count(*) from tasks") == 0


async def test_another_skill_is_what_was_loaded_and_the_report_can_be_a_page(
    supaclaw: Supaclaw, place: Path, day: None, dsn: str
) -> None:
    load = {"action": "load", "name": "greeting"}
    async with await Database.connect(dsn) as database, database.transaction() as tx:
        await tx.execute("update messages set tool = 'skills', text = $1 where kind = 'tool_intent'", json.dumps(load))
    (place / "new.md").write_text("---\nname: greeting\ndescription: Greets.\n---\nSay ahoy.\n")
    rules = Rule("Lisbon", tool_calls=(Call("skills", load),), times=1), Rule(text="Ahoy.", after_tools=True)
    done, models = await replayed(supaclaw, place, "--yes", "--skill", "new.md", "--page", rules=rules)

    assert (done.code, done.err) == (0, "")
    assert "Say ahoy." in models.asked[-1].body["messages"][-1]["content"]
    assert "the same calls in 1" in done.out
    assert done.out.startswith("<!doctype html>")
    assert "<blockquote>\n<p>Ahoy.</p>" in done.out
    (place / "bad.md").write_text("no front matter")
    refused, _ = await replayed(supaclaw, place, "--yes", "--skill", "bad.md", rules=())
    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1
