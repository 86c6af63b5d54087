"""Files and messages of the agent's own accord, through a whole gateway to a messenger."""

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess


async def test_a_file_the_agent_wrote_arrives_in_the_chat(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [
        Rule("plan", tool_calls=(Call("write_file", {"path": "plan.md", "content": "Tea at four.\n"}),)),
        Rule(
            "plan",
            tool_calls=(Call("send_file", {"path": "plan.md", "caption": "The plan."}),),
            after_tools=True,
            times=1,
        ),
        Rule("plan", text="There it is.", after_tools=True),
    ]
    telegram.say("make a plan", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    file, answer = telegram.sent
    assert (file.text, answer.text) == ("The plan.", "There it is.")
    assert file.file is not None
    assert (file.file.name, file.file.data) == ("plan.md", b"Tea at four.\n")


async def test_a_very_long_answer_is_a_beginning_and_a_file(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    story = "\n\n".join(f"Chapter {number}." + " word" * 400 for number in range(20))
    models.rules = [Rule("story", text=story)]
    telegram.say("tell me a story", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    beginning, whole = telegram.sent
    assert beginning.text.startswith("Chapter 0. word")
    assert whole.file is not None
    assert whole.file.data.decode() == story
