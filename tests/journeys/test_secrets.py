"""A model that tries to read what the gateway knows."""

import json

import pytest

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured

pytestmark = pytest.mark.thorough

PLACES = (
    "../../config.json",
    "../keys/local-token",
    "config-link.json",
    "/proc/self/environ",
    "uploads/../../../config.json",
)


async def test_a_model_that_reads_all_it_can_sees_no_secret(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    process.fresh = True  # the system shows a fork with the environment of what it was forked from
    process.configure(configured(telegram, models))
    await process.start()
    (process.workspace / "config-link.json").symlink_to(process.home / "config.json")
    models.rules = [Rule("look", tool_calls=tuple(Call("read_file", {"path": place}) for place in PLACES))]
    telegram.say("look everywhere mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))
    shown = json.dumps(models.bodies)
    said = " ".join(sent.text for sent in telegram.sent)
    local_token = (process.data / "keys" / "local-token").read_text(encoding="utf-8").strip()

    results = [m["content"] for m in models.bodies[-1]["messages"] if m["role"] == "tool"]
    assert ["error" in json.loads(result) for result in results] == [True] * len(PLACES)
    for secret in (telegram.token, "sk-of-the-owner", local_token):
        assert secret not in shown
        assert secret not in said
