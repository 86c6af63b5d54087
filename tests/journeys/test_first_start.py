from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured, said


async def test_an_empty_home_is_enough_to_get_an_answer(embedded: GatewayProcess) -> None:
    embedded.fresh = True
    await embedded.start()

    assert any("guide" in line for line in embedded.told if line.startswith("model "))
    assert "No model is connected yet" in said(await embedded.complete("hello", key="1"))
    chat = await embedded.command("chat", "hello")
    assert (chat.code, "No model is connected yet" in chat.told) == (0, True), chat
    assert (embedded.workspace / "AGENTS.md").exists()
    assert sorted(path.name for path in embedded.home.iterdir()) == ["data"]


async def test_the_guide_answers_on_telegram(process: GatewayProcess, telegram: FakeTelegram) -> None:
    process.configure(configured(telegram))
    await process.start()
    telegram.say("how do I connect Anthropic?", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert "ANTHROPIC_API_KEY" in telegram.sent[0].text


async def test_what_is_kept_is_for_its_owner_alone(process: GatewayProcess) -> None:
    await process.start()

    assert process.data.stat().st_mode & 0o777 == 0o700
    assert (process.data / "keys" / "local-token").stat().st_mode & 0o777 == 0o600


async def test_variables_alone_are_enough_for_an_answer_on_telegram(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    """As compose's `.env`, and no other file."""
    process.home.joinpath(".env").write_text(
        f"""\
TELEGRAM_BOT_TOKEN={telegram.token}
SUPACLAW__CHANNELS__TELEGRAM__API_BASE={telegram.url}
SUPACLAW_OWNER_TELEGRAM={OWNER}
OPENAI_API_KEY=sk-of-the-owner
SUPACLAW__MODELS__PROVIDERS__OPENAI__BASE_URL={models.base_url}
SUPACLAW_MODEL=openai/mock-model
"""
    )
    await process.start()
    telegram.say("hello mk7x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert "fin7x" in telegram.sent[0].text
    assert not (process.home / "config.json").exists()
    shown = await process.command("config", "get", "channels.telegram.token")
    assert telegram.token not in shown.told
    assert "set by TELEGRAM_BOT_TOKEN" in shown.told
    refused = await process.command("config", "set", "owner.telegram", "78")
    assert (refused.code, "set by SUPACLAW_OWNER_TELEGRAM" in refused.told) == (1, True)
