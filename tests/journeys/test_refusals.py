"""What keeps a gateway from starting is told in one line."""

import socket
from dataclasses import replace

import pytest

from tests.journeys.process import Ended, GatewayProcess


def in_one_line(ended: Ended, *words: str) -> bool:
    told = [line for line in ended.told.splitlines() if line]
    return ended.code != 0 and len(told) == 1 and all(word in told[0] for word in ("supaclaw: ", *words))


async def test_a_second_gateway_on_the_same_data(process: GatewayProcess) -> None:
    await process.start()
    second = await replace(process, told=[]).refused()

    assert in_one_line(second, "already runs", str(process.running.pid), "supaclaw down"), second


async def test_a_worker_of_an_embedded_database(embedded: GatewayProcess) -> None:
    ended = await embedded.run("worker")
    out, err = await ended.communicate()

    assert ended.returncode
    assert b"database.url" in err
    assert (out, err.count(b"\n")) == (b"", 1)


async def test_a_port_in_use(process: GatewayProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = await process.refused(SUPACLAW_PORT=port)

    assert in_one_line(ended, f"127.0.0.1:{port}", "SUPACLAW_PORT"), ended


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{not json", ("config.json", "line 1")),
        ('{"owner": 5}', ("config.json", "owner")),
        ('{"modles": {}}', ("modles", "models")),
        ('{"owner": {"telegram": "1"}, "channels": {"telegram": {"token": "no"}}}', ("telegram.token", "@BotFather")),
        ('{"channels": {"telegramm": {}}}', ("telegramm", "telegram")),
        ('{"models": {"providers": {"openai": {"api_key": "$env:NOT_SET_ANYWHERE"}}}}', ("NOT_SET_ANYWHERE",)),
    ],
)
async def test_a_config_that_is_wrong(process: GatewayProcess, config: str, words: tuple[str, ...]) -> None:
    process.configure(config)
    ended = await process.refused()

    assert in_one_line(ended, *words), ended


async def test_a_config_that_cannot_be_read(process: GatewayProcess) -> None:
    (process.home / "config.json").mkdir()
    ended = await process.refused()

    assert in_one_line(ended, "config.json", "is a folder"), ended


async def test_a_data_folder_that_cannot_be_written(process: GatewayProcess) -> None:
    (process.home / "a-file").touch()
    ended = await process.refused(SUPACLAW_DATA=str(process.home / "a-file" / "data"))

    assert in_one_line(ended, "a-file/data"), ended


async def test_an_external_database_that_is_down(process: GatewayProcess) -> None:
    """Whoever started it reads why it waits, and may end it."""
    await process.spawn(SUPACLAW_DATABASE_URL="postgresql://ada:hush-hush@127.0.0.1:1/supaclaw")
    assert "database cannot be reached" in await process.hears("start.waits")
    ended = await process.terminate()

    assert ended.code == 0
    assert "hush-hush" not in ended.told


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql://ada:se#cret@127.0.0.1:1/supaclaw", "ambiguous"),
        ("mysql://ada@127.0.0.1/supaclaw", "postgresql://"),
        ("postgresql://ada@127.0.0.1:1/supaclaw?sslmode=perhaps", "cannot be used"),
    ],
)
async def test_an_address_that_cannot_be_one(process: GatewayProcess, address: str, words: str) -> None:
    ended = await process.refused(SUPACLAW_DATABASE_URL=address)

    assert in_one_line(ended, "database URL", words), ended


async def test_a_crash_step_that_does_not_exist(process: GatewayProcess) -> None:
    ended = await process.refused(SUPACLAW_FAIL="turn.taken2")

    assert in_one_line(ended, "SUPACLAW_FAIL", "turn.taken"), ended
