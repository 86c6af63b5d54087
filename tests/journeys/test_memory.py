"""Memory in a running gateway: what kills it while it indexes costs nothing, and counts nothing twice."""

import json

import pytest

from gateway.config.failpoints import Step
from tests.conftest import one_of_a_class
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.importers.test_chats import chatgpt, said
from tests.journeys.process import GatewayProcess, configured, until

pytestmark = pytest.mark.thorough

TEXTS = 160
"""Of which enough are left after a kill that none waits for more."""
EMBEDDED_SECONDS = 180.0
"""Vectors are made in a process that yields to all others, on two busy cores."""


@pytest.mark.parametrize(
    "step", one_of_a_class([Step.MEMORY_INDEXED, Step.MEMORY_COUNTED, Step.MEMORY_EMBEDDED], {Step.MEMORY_EMBEDDED})
)
async def test_whoever_is_killed_while_it_indexes_goes_on_where_it_was(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, step: Step
) -> None:
    process.configure(configured(telegram, models))
    await process.start()
    await process.terminate()  # a gateway that ran during the import might be through with all of it
    texts = [said("user" if text % 2 else "assistant", f"the otter number {text}") for text in range(TEXTS)]
    (process.home / "conversations.json").write_text(json.dumps([chatgpt("c1", *texts)]))
    assert (await process.command("import", "chatgpt", "conversations.json")).code == 0
    if step is Step.MEMORY_INDEXED:  # as if the import had been killed before it indexed
        await process.rows("delete from memory_progress")
        await process.rows("delete from memories")
    await process.spawn(SUPACLAW_FAIL=step)
    assert (await process.ended()).code == -9
    await process.start()

    async def done() -> bool:
        if not (await process.rows("select to_regclass('memory_vectors') as made"))[0]["made"]:
            return False  # a kill before the first batch leaves the table to the next start
        rows = await process.rows("select count(*) as n from memory_vectors")
        return bool(rows[0]["n"] == TEXTS)

    await until(done, EMBEDDED_SECONDS)
    [rows] = await process.rows(
        "select count(*) as n, count(distinct message_id) as turns, bool_and(counted) as all from memories"
    )
    [otters] = await process.rows("select df from memory_df where lexeme = 'otter'")
    assert (rows["n"], rows["turns"], rows["all"], otters["df"]) == (TEXTS, TEXTS, True, TEXTS)


async def test_killed_while_it_consolidates_it_merges_once(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [Rule("Tidy this memory", text='{"same": [[2, 1]]}')]
    process.configure(configured(telegram, models))
    await process.start()
    for text in ("Tea is drunk by Ada.", "Ada drinks tea."):
        assert (await process.command("remember", text)).code == 0

    async def counted() -> bool:
        return not await process.rows("select from memories where not counted")

    await until(counted)
    await process.terminate()
    await process.rows("update memory_stats set consolidated_at = now() - interval '2 days'")
    await process.spawn(SUPACLAW_FAIL=Step.MEMORY_JUDGED)
    assert (await process.ended()).code == -9
    assert await process.rows("select from memories where superseded_by is not null") == []
    await process.start()

    async def done() -> bool:
        return bool(await process.rows("select from tasks where kind = 'consolidate' and status = 'completed'"))

    await until(done)
    rows = await process.rows("select id, seen_count, superseded_by from memories where kind = 'memory' order by id")
    assert [(row["id"], row["seen_count"], row["superseded_by"]) for row in rows] == [(1, 1, 2), (2, 2, None)]
