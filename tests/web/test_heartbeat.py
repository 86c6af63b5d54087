from datetime import UTC, datetime

from gateway.domain.health import HeartbeatOutcome, HeartbeatResult
from gateway.domain.people.credentials import Scope
from gateway.store.people import tokens
from gateway.store.work import heartbeats
from gateway.store.work.heartbeats import Pulse
from tests.web.conftest import BEARER, Running, Web

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


async def test_one_is_made_when_asked_for(running: Running) -> None:
    async def beat() -> HeartbeatResult:
        return HeartbeatResult(NOON, HeartbeatOutcome.RUNNING)

    started = await running.start(beat=beat)
    answer = await started.web.client.post("/api/heartbeat", headers=BEARER)

    assert answer.status_code == 202
    assert answer.json() == {"at": "2026-11-21T12:00:00Z", "outcome": "running", "text": ""}
    await started.stop()


async def test_how_the_last_one_went_can_be_read(web: Web) -> None:
    before = (await web.client.get("/api/heartbeat", headers=BEARER)).json()
    async with web.path.database.transaction() as tx:
        pulse = await heartbeats.begin(tx, NOON)
        await heartbeats.claim(
            tx, pulse.at, Pulse(at=NOON, looked=NOON, outcome=HeartbeatOutcome.IDLE, text="nothing to do")
        )
    after = (await web.client.get("/api/heartbeat", headers=BEARER)).json()

    assert before["outcome"] == "waiting"
    assert after == {"at": "2026-11-21T12:00:00Z", "outcome": "idle", "text": "nothing to do"}


async def test_it_costs_money_so_looking_is_not_enough(web: Web) -> None:
    _, reader = await tokens.create(web.path.database, web.backend.owner.id, "reader", [Scope.READ])
    headers = {"Authorization": f"Bearer {reader}"}

    assert (await web.client.post("/api/heartbeat", headers=headers)).status_code == 403
    assert (await web.client.get("/api/heartbeat", headers=headers)).status_code == 200
