from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from gateway.agent.limits import Limits
from gateway.domain.conversation.inbound import TEMPORARY
from gateway.domain.text.texts import compact
from gateway.store.work import budgets
from gateway.web.screens.usage import summed
from tests.web.conftest import Running, Web

DAY = timedelta(days=1)


def now() -> datetime:
    """Asked at each use: a run of all tests may go past midnight."""
    return datetime.now(UTC)


async def used(web: Web, usd: float, *, model: str = "m", ago: float = 0, session: UUID | None = None) -> None:
    """One model call, in a task of its own."""
    await web.path.rows(
        """with task as (
             insert into tasks (id, master_id, kind, lane, principal_id, status, session_id)
             select gen_random_uuid(), gen_random_uuid(), 'summarise', 'agents', id, 'completed', $4 from principals
             where role = 'owner' returning id, principal_id)
           insert into task_steps (task_id, principal_id, kind, name, cost_usd, tokens_in, tokens_out, tokens_cached,
                                   created_at)
           select id, principal_id, 'model', $2, $1, 1000, 100, 250, $3 from task returning id""",
        usd,
        model,
        now() - timedelta(days=ago),
        session,
    )


async def read(web: Web, days: int = 30) -> list[budgets.UsageRow]:
    async with web.path.database.connection() as conn:
        return await budgets.used(conn, now() - timedelta(days=days), now() + timedelta(minutes=1))


async def test_what_is_used_is_told_by_day_model_channel_and_session(web: Web):
    accepted = await web.path.tell("hello")
    await used(web, 0.5, session=accepted.session_id)
    await used(web, 0.25, model="other", ago=2)
    await used(web, 9, ago=40)
    rows = await read(web)
    assert [(row.day, row.model, row.channel, row.session_id, row.cost_usd) for row in rows] == [
        ((now() - timedelta(days=2)).date(), "other", "summarise", None, 0.25),
        (now().date(), "m", "fake", accepted.session_id, 0.5),
    ]
    [total] = summed(rows, lambda _: "")
    assert (total.calls, total.tokens_in, total.tokens_out, total.tokens_cached, total.cost_usd) == (
        2,
        2000,
        200,
        500,
        0.75,
    )


async def test_a_call_counts_for_the_channel_of_the_message_that_it_answers(web: Web):
    session = (await web.path.tell("hello")).session_id
    said = """insert into messages (session_id, principal_id, seq, kind, text, label, origin, created_at)
              select $1, id, $3, 'user', 'hi', 0, $2, $4 from principals where role = 'owner' returning id"""
    await web.path.rows("update messages set created_at = $1 where session_id = $2 returning id", now() - DAY, session)
    await web.path.rows(said, session, "web", 1_000, now() - timedelta(hours=2))
    await web.path.rows(said, session, "gateway", 1_001, now() - timedelta(hours=1))
    await used(web, 0.5, session=session)
    await used(web, 0.25, session=session, ago=0.5)
    assert sorted((row.channel, row.cost_usd) for row in await read(web)) == [("fake", 0.25), ("web", 0.5)]


async def test_the_dearest_comes_first(web: Web):
    await used(web, 0.5)
    await used(web, 0.25, model="other")
    await used(web, 0.5, model="other")
    assert [(line.model, line.calls) for line in summed(await read(web), lambda row: row.model)] == [
        ("other", 2),
        ("m", 1),
    ]


async def test_the_page_shows_numbers_chart_and_budgets(running: Running):
    started = await running.start(limits=lambda: Limits(day_usd=2.0))
    web = started.web
    await used(web, 0.5)
    await used(web, 1.0, model="<i>other</i>", ago=1)
    async with web.sign_in() as browser:
        page = (await browser.get("/usage?days=7")).text
        day = (await browser.get(f"/usage?day={now().date()}")).text
    assert "$0.50 <small>of $2.00</small>" in page
    assert "no limit" in page
    assert "$1.50, 2 model calls, 2.0k tokens in (25 % cached), 200 out" in page
    assert page.count('<rect class="hit"') == 2
    assert page.count("<span>$1.00</span>") == 1
    assert "<b>$0.50</b>" in page
    assert "&lt;i&gt;other&lt;/i&gt;" in page
    assert "$0.50, 1 model call" in day
    assert "&lt;i&gt;other" not in day
    await started.stop()


async def test_without_any_call_it_says_so(web: Web):
    async with web.sign_in() as browser:
        assert "No model was called in the last 30 days" in (await browser.get("/usage")).text
        assert "No model was called on 2020-01-01" in (await browser.get("/usage?day=2020-01-01")).text
        for asked in ("days=0", "days=x", "day=x", "day=9999-12-31"):
            assert (await browser.get(f"/usage?{asked}")).status_code == 400


async def test_free_models_are_drawn_by_their_tokens(web: Web):
    await used(web, 0)
    async with web.sign_in() as browser:
        page = (await browser.get("/usage")).text
    assert "<span>1.1k tokens</span><span>550 tokens</span>" in page
    assert 'height="100.0"' in page


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (950, "950"), (1234, "1.2k"), (34_000, "34k"), (5_600_000, "5.6M"), (2e9, "2.0G")]
)
def test_counts_are_short(number: float, shown: str):
    assert compact(number) == shown


async def test_a_chat_has_its_title_there_and_a_temporary_one_has_none(web: Web):
    async with web.sign_in() as browser:
        told, hidden = [
            (await browser.post("/chat", data={"client_id": text, "text": text, "chat": chat})).json()["session_id"]
            for text, chat in (("Plan a trip to Lisbon", ""), ("Nobody may know", f"{TEMPORARY}{uuid4()}"))
        ]
        for session in (told, hidden):
            await used(web, 0.5, session=UUID(session))
        page = (await browser.get("/usage")).text
    assert f'<a href="/c/{told}" dir="auto">Plan a trip to Lisbon</a>' in page
    assert "Nobody may know" not in page
    assert f"/logs?session={hidden}" in page
