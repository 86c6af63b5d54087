"""Refusals of models last across restarts, and the owner is told of each once."""

from datetime import timedelta

from gateway.domain.errors import DatabaseDown
from gateway.flow.model_refusals import RefusalKeeper, cut_prompts
from gateway.llm.vendors import CONTEXT, CUTS, IMAGES, Refusals
from gateway.store.connection.pool import Database
from tests.llm.chain import FakeClock


async def test_one_of_which_the_owner_could_not_be_told_is_told_later(database: Database) -> None:
    clock, told = FakeClock(), list[str]()
    unavailable = [DatabaseDown("away")]

    async def tell(text: str) -> None:
        if unavailable:
            raise unavailable.pop()
        told.append(text)

    keeper = RefusalKeeper(database, Refusals(clock), tell, clock)
    keeper.refusals.note("here", "acme/one", IMAGES)
    await keeper.look()
    await keeper.look()
    assert len(told) == 1


async def test_they_are_kept_for_a_day_and_told_once(database: Database) -> None:
    clock, told = FakeClock(), list[str]()

    async def tell(text: str) -> None:
        told.append(text)

    def started() -> RefusalKeeper:
        return RefusalKeeper(database, Refusals(clock), tell, clock)

    first = started()
    for part in ("tools", IMAGES, "thinking off", "max_tokens"):
        first.refusals.note("here", "acme/one", part)
    await first.look()
    assert [text.partition(" doesn't take ")[2].partition(".")[0].partition(":")[0] for text in told] == [
        "tools",
        "pictures",
        "the thinking level 'off'",
    ]
    again = started()
    await again.look()
    assert again.refusals.of("here") == {"tools", IMAGES, "thinking off", "max_tokens"}
    await clock.sleep(timedelta(days=1, seconds=1).total_seconds())
    assert again.refusals.of("here") == frozenset()
    again.refusals.note("here", "acme/one", "tools")
    await again.look()
    assert len(told) == 3
    later = started()
    await later.look()
    assert later.refusals.of("here") == {"tools"}


async def test_a_server_that_cuts_prompts_is_told_once_and_stays_known(database: Database) -> None:
    clock, told = FakeClock(), list[str]()

    async def tell(text: str) -> None:
        told.append(text)

    for model in ("ollama/qwen3:8b", "lm_studio/q"):
        for _ in range(2):
            keeper = RefusalKeeper(database, Refusals(clock), tell, clock)
            keeper.refusals.note(model, model, f"{CONTEXT}8192{CUTS}")
            await keeper.look()
    remedies = [words.removesuffix(".").split(": ", 1)[1] for words in told]
    assert [" ".join(remedy.split("; ")[1].split()[:2]) for remedy in remedies] == ["run `ollama", "load q"]
    async with database.connection() as conn:
        found = await cut_prompts(conn, clock.now())
    assert sorted(remedy for _, remedy in found) == sorted(remedies)
