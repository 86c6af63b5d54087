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
