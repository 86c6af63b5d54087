import json
import re
import socket
from pathlib import Path

import pytest

from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, happens, until

pytestmark = pytest.mark.thorough


async def test_a_turn_under_way_is_finished_before_the_end(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.latency_ms = 700
    telegram.say("hello mk1x", OWNER)
    await happens(models.started)
    ended = await gateway.terminate()

    assert ended.code == 0
    assert [sent.text.split()[-1] for sent in telegram.sent] == ["fin1x"]
    delivered = await gateway.rows("select state from outbox")
    assert [row["state"] for row in delivered] == ["sent"]


async def test_a_turn_that_takes_too_long_is_answered_after_the_next_start(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [Rule("mk1x", hang=True, times=1)]
    telegram.say("hello mk1x", OWNER)
    await happens(models.started)
    ended = await gateway.terminate()

    assert ended.code == 0
    assert telegram.sent == []
    await gateway.start()
    await telegram.wait_for(lambda tg: bool(tg.sent))
    assert [sent.text.split()[-1] for sent in telegram.sent] == ["fin1x"]


async def test_one_whose_database_another_gateway_took_over_stops_and_loses_nothing(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels, tmp_path: Path
) -> None:
    models.rules = [Rule("mk1x", hang=True, times=1)]
    telegram.say("hello mk1x", OWNER)
    await happens(models.started)
    await gateway.rows("update leases set holder = gen_random_uuid(), expires_at = now() + interval '1 h' returning 1")
    ended = await gateway.ended()

    assert ended.code == 1
    assert "supaclaw: another gateway took over this database" in ended.told
    assert telegram.sent == []
    telegram.say("hello mk2x", OWNER)
    assert "another gateway is running" in (await gateway.refused()).told
    await gateway.rows("delete from leases returning 1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(10)
        systemd.bind(str(tmp_path / "notify"))
        await gateway.start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert {systemd.recv(100) for _ in range(2)} == {b"READY=1", b"WATCHDOG=1"}
    await telegram.wait_for(lambda tg: any(sent.text.endswith("fin2x") for sent in tg.sent))
    assert [sent.text.split()[-1] for sent in telegram.sent] in (["fin2x"], ["fin1x", "fin2x"])
    assert "hello mk1x" in str(models.bodies[-1])


async def test_an_idle_gateway_shows_that_it_lives_and_asks_no_model(
    gateway: GatewayProcess, models: FakeModels, telegram: FakeTelegram
) -> None:
    health = gateway.data / "health"
    health.unlink(missing_ok=True)

    async def it_is_back() -> bool:
        return health.exists() and bool(health.read_text())

    await until(it_is_back)

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", health.read_text())
    jobs = json.loads((await gateway.command("status", "--json")).told)["vitals"]["jobs"]
    expected = {"heartbeat", "checkpoints", "consolidation", "log pruning", "retention", "secrets"}
    assert {name for name, date in jobs.items() if date} == expected
    assert jobs["schedules"] is None
    assert models.count == 0
    assert telegram.sent == []


async def test_down_stops_the_gateway_and_its_postgres(embedded: GatewayProcess) -> None:
    await embedded.start()
    down = await embedded.command("down")
    ended = await embedded.ended()

    assert (down.code, ended.code) == (0, 0)
    assert not embedded.postgres.is_running
