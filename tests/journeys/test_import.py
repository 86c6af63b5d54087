import asyncio
import json

import pytest

from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.importers.test_chats import chatgpt, said
from tests.journeys.process import OWNER, GatewayProcess

pytestmark = pytest.mark.thorough

CONVERSATIONS, TEXTS = 40, 20


async def test_an_import_beside_a_gateway_that_answers_disturbs_neither(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    talks = [
        chatgpt(f"c{talk}", *(said("user" if text % 2 else "assistant", f"{talk}/{text}") for text in range(TEXTS)))
        for talk in range(CONVERSATIONS)
    ]
    (gateway.home / "conversations.json").write_text(json.dumps(talks))
    importing = asyncio.create_task(gateway.command("import", "chatgpt", "conversations.json"))
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))
    done = await importing
    telegram.say("and now? mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    assert (done.code, done.told) == (
        0,
        f"Imported: 0 memories, {CONVERSATIONS} sessions, 0 tasks, 0 learnings ({CONVERSATIONS * TEXTS} messages)\n",
    )
    assert [sent.text.split()[-1] for sent in telegram.sent] == ["fin1x", "fin2x"]
    assert models.count == 2, "nobody answered what was imported"
    await gateway.terminate()
    await gateway.start()
    telegram.say("back? mk3x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 3)
    await gateway.terminate()

    assert models.count == 3
    [files] = await gateway.rows(
        """select count(*) filter (where journal_id is null) as missing, count(*) as messages from messages
           where origin not like 'import:%'"""
    )
    assert (files["missing"], files["messages"]) == (0, 6)
    assert [row[0] for row in await gateway.rows("select count(*) from journals")] == [1]
    assert len(list((gateway.workspace / "sessions").rglob("*.md"))) == 1
