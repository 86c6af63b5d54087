from gateway.commands.start import GREETING
from gateway.domain.people.credentials import new_code
from gateway.store.people import pairings
from tests.flow.path import MEMBER, STRANGER, MessagePath, message


async def test_it_greets_says_what_to_do_and_names_the_commands(path: MessagePath) -> None:
    said = await path.ask("/start")
    assert said == f"{GREETING}\n\n{await path.ask('/help')}"
    assert await path.ask("/start from-an-advertisement") == said


async def test_a_member_is_shown_what_a_member_can_use(path: MessagePath) -> None:
    async with path.working():
        said = (await path.answer(await path.tell("/start", sender=MEMBER, chat=MEMBER))).text
    assert said.startswith(GREETING)
    assert "/pairing" not in said


async def test_a_code_that_opens_nothing_is_told_so(path: MessagePath) -> None:
    assert (await path.ask(f"/start {new_code()}")).startswith("This code isn't valid")


async def test_the_code_of_somebody_who_asks_shows_the_owner_who_it_is_and_lets_nobody_in(path: MessagePath) -> None:
    async with path.database.transaction() as tx:
        asked = await pairings.request(tx, message("let me in", sender=STRANGER, chat=STRANGER), new_code())
    assert asked is not None
    said = await path.ask(f"/start {asked.code}")
    assert f"(id `{STRANGER}`) requests access" in said
    assert f"/pairing approve {asked.code}" in said
    async with path.database.connection() as conn:
        assert [row.code for row in await pairings.open_requests(conn)] == [asked.code]
