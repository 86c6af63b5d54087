"""Files dropped into a chat, and everything behind them."""

import pytest

from tests.fakes.openai_server import FakeModels, text_of
from tests.fakes.telegram import FakeTelegram
from tests.ingest.samples import pdf, picture
from tests.journeys.process import OWNER, GatewayProcess


def prompts(models: FakeModels) -> list[dict[str, str]]:
    """What stood in each prompt that answers the chat, by role."""
    bodies = [body for body in models.bodies if body.get("tools")]
    return [
        {
            role: "\n".join(text_of(m["content"]) for m in body["messages"] if m["role"] == role)
            for role in ("system", "user")
        }
        for body in bodies
    ]


async def test_a_pdf_is_read_and_known_from_then_on(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    lease = {**telegram.keep(pdf("The rent is 700 euros.")), "file_name": "lease.pdf", "mime_type": "application/pdf"}
    telegram.say(None, OWNER, document=lease, caption="what is the rent? mk1x")
    await telegram.wait_for(lambda tg: any("fin1x" in sent.text for sent in tg.sent), 90)
    telegram.say("and now? mk2x", OWNER)
    await telegram.wait_for(lambda tg: any("fin2x" in sent.text for sent in tg.sent))
    first, second = prompts(models)
    [file] = await gateway.rows("select path from files")
    assert "The rent is 700 euros." in first["user"]
    assert f"- lease.pdf (application/pdf) {file['path']}: " in second["system"]
    assert (gateway.workspace / f"{file['path']}.pages" / "001.jpg").exists()


@pytest.mark.thorough
async def test_a_photo_is_shown_to_a_model_with_eyes_once(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    photo = {**telegram.keep(picture("JPEG")), "width": 1072, "height": 248}
    telegram.say(None, OWNER, photo=[photo], caption="what is it? mk1x")
    await telegram.wait_for(lambda tg: any("fin1x" in sent.text for sent in tg.sent), 90)
    telegram.say("and now? mk2x", OWNER)
    await telegram.wait_for(lambda tg: any("fin2x" in sent.text for sent in tg.sent))
    first, second = (str(body["messages"]) for body in models.bodies if body.get("tools"))
    assert "data:image/jpeg;base64," in first
    assert "data:image" not in second
