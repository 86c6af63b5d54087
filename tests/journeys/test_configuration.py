from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import FRIEND, OWNER, GatewayProcess, configured


async def test_a_stranger_becomes_a_member_by_an_edit(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    telegram.say("let me in mk1x", FRIEND)
    await telegram.wait_for(lambda tg: not tg.pending)

    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"].append(str(FRIEND))
    gateway.configure(config)
    await gateway.hears("config.changed")
    telegram.say("and now? mk2x", FRIEND)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert [(sent.chat, sent.text.split()[-1]) for sent in telegram.sent] == [(FRIEND, "fin2x")]
    roles = await gateway.rows("select role, identities from principals order by created_at")
    assert [tuple(row) for row in roles] == [
        ("owner", [f"telegram:{OWNER}"]),
        ("member", [f"telegram:{FRIEND}"]),
    ]


async def test_another_model_takes_over_without_a_restart(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    config = configured(telegram, models)
    config["models"]["primary"] = "openai/gpt-4o"
    gateway.configure(config)
    await gateway.hears("config.changed")
    telegram.say("/model", OWNER)
    telegram.say("who are you? mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    assert telegram.sent[0].text.startswith("Model: openai/gpt-4o")
    assert telegram.sent[1].text.endswith("fin1x")
    assert [asked.model for asked in models.asked] == ["gpt-4o"]


async def test_a_broken_edit_changes_nothing_and_is_told(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)

    gateway.configure('{"modles": {}}')
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)
    telegram.say("still there? mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 3)

    assert "config.json" in telegram.sent[1].text
    assert "modles" in telegram.sent[1].text
    assert "The last good version is still in use." in telegram.sent[1].text
    assert telegram.sent[2].text.endswith("fin2x")
