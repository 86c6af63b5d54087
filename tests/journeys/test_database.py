import os
import signal

import pytest

from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured, happens

pytestmark = pytest.mark.thorough

CHATS = range(OWNER, OWNER + 12)


async def test_a_database_killed_in_a_burst_loses_nothing(
    embedded: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"] = [str(chat) for chat in CHATS]
    embedded.configure(config)
    await embedded.start()
    models.latency_ms = 200
    for number, chat in enumerate(CHATS, start=1):
        telegram.say(f"hello mk{number}x", chat)
    await happens(models.started)
    postmaster = int((embedded.data / "postgres" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(postmaster, signal.SIGKILL)
    for number, chat in enumerate(CHATS, start=101):
        telegram.say(f"and again mk{number}x", chat)

    await telegram.wait_for(lambda tg: all(last_word(tg, chat) == f"fin{chat - OWNER + 101}x" for chat in CHATS))
    shown = [(sent.chat, sent.text) for sent in telegram.sent]
    assert len(shown) == len(set(shown))
    stored = await embedded.rows("select count(*) from messages where kind = 'user' and answered_by is not null")
    assert stored[0]["count"] == 2 * len(CHATS)
    assert embedded.running.returncode is None


def last_word(telegram: FakeTelegram, chat: int) -> str:
    said = [sent.text for sent in telegram.sent if sent.chat == chat]
    return said[-1].split()[-1] if said else ""
