"""What was said is erased for good: afterwards no table, journal, log, checkpoint or file has a word of it."""

import pytest
from playwright.async_api import Browser, expect

from gateway.config.data.erasures import ErasureRequest, read_request
from gateway.config.failpoints import Step
from tests.browser.conftest import browser
from tests.chaos.people import free_port
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram, Sent
from tests.ingest.samples import pdf
from tests.journeys.process import FRIEND, OWNER, GatewayProcess, configured, until
from tests.traces import IN_ROWS, WORDS, in_checkpoints, in_files

__all__ = ["browser"]

pytestmark = pytest.mark.thorough

FACT = "The heron code is 7741 quagga"
SECRET = f"Keep in mind: {FACT}, and nobody else may know it. mk1x"
NOTE = f"# Codes\n\n- shed: 12\n- {FACT.upper()}\n- gate: 34\n"


@pytest.fixture
def models(models: FakeModels) -> FakeModels:
    models.rules = [
        Rule(
            "Keep in mind",
            text=f"I keep it. {FACT}! ",
            tool_calls=(
                Call("remember", {"content": FACT, "category": "fact"}),
                Call("write_file", {"path": "notes/codes.md", "content": NOTE}),
            ),
        )
    ]
    return models


async def lived_through(process: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> None:
    """A life in which the words come to lie wherever they can; the gateway is stopped at its end."""
    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"].append(str(FRIEND))
    process.configure(config)
    await process.start()
    telegram.say(SECRET, OWNER)
    await telegram.wait_for(lambda tg: answered(tg.sent, "1"), 120)
    telegram.say(f"my friend told me mk2x\n{FACT}", FRIEND)
    await telegram.wait_for(lambda tg: answered(tg.sent, "2"), 120)
    letter = {**telegram.keep(pdf(f"The {WORDS} has the code.")), "file_name": "a.pdf", "mime_type": "application/pdf"}
    telegram.say(None, OWNER, document=letter, caption="see this mk3x")
    await telegram.wait_for(lambda tg: answered(tg.sent, "3"), 120)
    plain = {**telegram.keep(f"The {WORDS} again.".encode()), "file_name": "b.txt", "mime_type": "text/plain"}
    telegram.say(None, FRIEND, document=plain, caption="see this mk4x")
    await telegram.wait_for(lambda tg: answered(tg.sent, "4"), 120)
    assert (await process.command("checkpoints", "create")).code == 0
    (process.workspace / "notes" / f"{WORDS} plan.md").write_text("nothing in it", "utf-8")
    (process.workspace / "AGENTS.md").write_text(f"Be kind.\n{FACT.swapcase()}\n", "utf-8")
    assert (await process.command("checkpoints", "create")).code == 0
    telegram.say("/remember the bike of quagga is red", OWNER)
    telegram.say("/new", OWNER)
    telegram.say("hello again mk5x", OWNER)
    await telegram.wait_for(lambda tg: answered(tg.sent, "5"), 120)

    async def filed() -> bool:
        index = process.workspace / "memory" / "INDEX.md"
        return index.exists() and WORDS in index.read_text() and await counted(process)

    await until(filed, 120)
    telegram.say("the same is here: 7741 quagga mk6x", OWNER)
    await telegram.wait_for(lambda tg: answered(tg.sent, "6"), 120)
    await process.terminate()


def answered(sent: list[Sent], number: str) -> bool:
    return any(f"fin{number}x" in each.text for each in sent)


async def counted(process: GatewayProcess) -> bool:
    [left] = await process.rows("select count(*) as n from memories where not counted")
    return bool(left["n"] == 0)


async def hits(process: GatewayProcess) -> list[str]:
    """Where the words are still, by table, file and object of the checkpoints."""
    return [
        *await in_tables(process),
        *in_files(process.data, but=("postgres", "backups")),
        *in_checkpoints(process.data / "checkpoints"),
    ]


async def in_tables(process: GatewayProcess) -> list[str]:
    names = await process.rows("select tablename from pg_tables where schemaname = 'supaclaw'")
    found = []
    for name in [row["tablename"] for row in names]:
        rows = await process.rows(f"select t::text as row from {name} t where t::text ~* $1", IN_ROWS)
        found += [f"{name}: {row['row'][:200]}" for row in rows]
    return found


def in_pages(process: GatewayProcess) -> list[str]:
    """Files of tables with the words; not the log of what was written before, which wears away by itself."""
    return [
        str(path)
        for path in (process.data / "postgres").rglob("*")
        if path.is_file() and "pg_wal" not in path.parts and WORDS.encode() in path.read_bytes().lower()
    ]


async def test_not_a_word_of_a_life_is_left_and_nothing_is_answered_again(
    embedded: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    await lived_through(embedded, telegram, models)
    before = await hits(embedded)
    for part in ("messages:", "memories:", "inbox:", "journals:", "memory_df:"):
        assert [hit for hit in before if hit.startswith(part)], part
    for part in ("INDEX.md", "codes.md", "principals", "uploads", "sessions"):
        assert [hit for hit in before if part in hit], part
    [memory] = await embedded.rows("select id from memories where kind = 'memory' and text = $1", FACT)

    done = await embedded.command("memories", "forget", str(memory["id"]), "--erase", "--also", WORDS, "--yes")

    assert done.code == 0, done.told
    assert await hits(embedded) == [], done.told
    await embedded.postgres.stop()
    assert in_pages(embedded) == []
    sent = len(telegram.sent)
    await embedded.start()
    telegram.say("are you there? mk7x", OWNER)
    await telegram.wait_for(lambda tg: answered(tg.sent, "7"), 120)
    assert len(telegram.sent) == sent + 1
    await embedded.terminate()
    assert await hits(embedded) == []


@pytest.mark.parametrize("step", ["", f"{Step.ERASURE_FILE}:1", Step.ERASURE_COMMITTED])
async def test_the_page_has_a_memory_erased_and_shows_what_became_of_it(
    browser: Browser, embedded: GatewayProcess, step: str
) -> None:
    embedded.environ |= {"SUPACLAW_PORT": str(free_port())}
    embedded.configure(configured())
    await embedded.start(**{"SUPACLAW_FAIL": step} if step else {})
    assert (await embedded.command("remember", FACT)).code == 0
    (embedded.workspace / "notes").mkdir()
    (embedded.workspace / "notes" / f"{WORDS}.md").write_text(f"the {WORDS} again\n")
    assert (await embedded.command("checkpoints", "create")).code == 0
    page = await (await browser.new_context()).new_page()
    await page.goto((await embedded.command("web")).told.strip().splitlines()[-1])
    await page.get_by_role("link", name="Memory", exact=True).click()
    await page.get_by_text("Source and edit").click()
    await page.get_by_text("Erase permanently…").click()
    await page.get_by_label("Also erase sentences").fill(f"{WORDS}\n")
    await page.get_by_label("I want this erased").check()
    await page.get_by_role("button", name="Erase and restart").click()
    await expect(page.get_by_role("status").filter(has_text="Erasing")).to_be_visible()
    if step:
        assert (await embedded.ended()).code != 0
        await embedded.start()
    await expect(page.locator("#erasure")).to_contain_text("files, renamed: 1", timeout=120_000)
    await expect(page.locator("main")).not_to_contain_text(WORDS)
    await page.get_by_role("button", name="Dismiss").click()
    await expect(page.locator("#erasure")).to_have_count(0)
    await page.context.close()
    await embedded.terminate()
    assert await hits(embedded) == []
    assert read_request(embedded.data) == ErasureRequest()
