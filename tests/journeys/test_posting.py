"""Files and messages of the agent's own accord, through a whole gateway to a messenger."""

import io

import pytest
from PIL import Image

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess
from tests.sandbox.tiers import confines

CHART = """\
import csv, struct, zlib
bars = [int(row["sold"]) for row in csv.DictReader(open("sales.csv"))]
rows = [bytes(255 * (y < 100 - bars[x // 10]) for x in range(10 * len(bars))) for y in range(100)]
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
head = struct.pack(">IIBBBBB", 10 * len(bars), 100, 8, 0, 0, 0, 0)
body = zlib.compress(b"".join(b"\\0" + row for row in rows))
open("chart.png", "wb").write(
    b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b""))
"""


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


@pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")
async def test_a_table_becomes_a_chart_by_a_program_of_the_agent_and_arrives_as_a_picture(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    steps = (
        Call("write_file", {"path": "sales.csv", "content": "day,sold\nMon,20\nTue,70\nWed,45\n"}),
        Call("write_file", {"path": "chart.py", "content": CHART}),
        Call("exec", {"command": "python3 chart.py && ls -l chart.png"}),
        Call("send_file", {"path": "chart.png", "caption": "Sold"}),
    )
    models.rules = [Rule("chart", tool_calls=steps[:1])]
    models.rules += [Rule("chart", tool_calls=(step,), after_tools=True, times=1) for step in steps[1:]]
    models.rules += [Rule("chart", text="There it is.", after_tools=True)]
    telegram.say("chart my sales", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    chart, answer = telegram.sent
    assert (chart.text, answer.text) == ("Sold", "There it is.")
    assert chart.file is not None
    picture = Image.open(io.BytesIO(chart.file.data))
    heights = [sum(picture.getpixel((10 * bar + 5, y)) == 0 for y in range(100)) for bar in range(3)]
    assert heights == [20, 70, 45]


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
