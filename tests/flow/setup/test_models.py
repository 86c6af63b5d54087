import json
import re
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from gateway.domain.errors import OwnerMustAct
from gateway.flow.setup import ModelRefused, connect_model, connect_server
from gateway.llm.client import build_client
from tests.fakes.openai_server import FakeModels, Rule
from tests.flow.setup.conftest import Home

KEY = "sk-proj-" + "a1B2" * 10


@pytest.fixture
def own(home: Callable[[str], Home], models: FakeModels) -> Home:
    provider = {"base_url": models.base_url}
    written = {"owner": {"name": "Ada"}, "models": {"fallbacks": [], "providers": {"openai": provider}}}
    return home(json.dumps(written))


async def test_a_key_is_tested_and_saved_by_reference(own: Home, models: FakeModels) -> None:
    connected = await connect_model(own.setup, f" {KEY}\n")

    assert re.fullmatch(r"OpenAI, openai/gpt-5.6-terra \(answered in \d+\.\d s(, \d+ tokens/s)?\)", connected.who)
    assert connected.paste == ""
    assert [asked.headers["Authorization"] for asked in models.asked] == [f"Bearer {KEY}"]
    assert own.keys == {"OPENAI_API_KEY": KEY}
    assert KEY not in own.config
    assert json.loads(own.config) == {
        "owner": {"name": "Ada"},
        "models": {
            "fallbacks": [],
            "providers": {"openai": {"base_url": models.base_url, "api_key": "$env:OPENAI_API_KEY"}},
            "primary": "openai/gpt-5.6-terra",
        },
    }
    assert own.hidden == [KEY]
    client = await build_client(own.setup.config().models, own.environ, own.setup.clock)
    assert client.describe().active == "openai/gpt-5.6-terra"
    await client.close()


async def test_the_model_is_changed_with_the_key_that_is_there(own: Home, models: FakeModels) -> None:
    await connect_model(own.setup, KEY)
    await connect_model(own.setup, "", model="openai/mini")

    assert models.asked[-1].model == "mini"
    assert models.asked[-1].headers["Authorization"] == f"Bearer {KEY}"
    assert own.setup.config().models.primary == "openai/mini"


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        (
            Rule(status=401, code="invalid_api_key", message=f"Incorrect API key: {KEY}"),
            "refuses this key.*create one at",
        ),
        (Rule(status=429, code="insufficient_quota"), "no credit"),
        (Rule(status=404, code="model_not_found"), "no model openai/gpt-5.6-terra for this key; choose another"),
        (Rule(status=429, code="rate_limit_exceeded"), "busy; try again"),
        (Rule(status=400, message=f"odd {KEY}"), "answered: HTTP 400: odd"),
    ],
)
async def test_what_fails_is_told_and_nothing_is_saved(own: Home, models: FakeModels, rule: Rule, advice: str) -> None:
    models.rules.append(rule)
    before = own.config
    with capture_logs() as logs, pytest.raises(ModelRefused, match=advice) as refused:
        await connect_model(own.setup, KEY)

    assert KEY not in f"{refused.value} {logs}"
    assert (own.config, own.keys) == (before, {})


async def test_a_provider_that_cannot_be_reached_is_told(home: Callable[[str], Home]) -> None:
    own = home('{"models": {"providers": {"openai": {"base_url": "http://127.0.0.1:9/v1"}}}}')
    with pytest.raises(ModelRefused, match=r"can't be reached.*check the network"):
        await connect_model(own.setup, KEY)


@pytest.mark.parametrize(
    ("key", "model", "advice"),
    [
        ("", "mini", "paste an API key"),
        (KEY, "anthropic/claude", "OpenAI key is for models that begin with openai/"),
        (KEY, KEY, "a key was pasted as the model's name"),
    ],
)
async def test_a_model_that_does_not_fit_is_told(own: Home, key: str, model: str, advice: str) -> None:
    with pytest.raises(OwnerMustAct, match=advice) as refused:
        await connect_model(own.setup, key, model=model)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "more", [{"OPENAI_API_KEY": "sk-another"}, {"SUPACLAW_MODEL": "x/y"}, {"SUPACLAW__MODELS__PRIMARY": "x/y"}]
)
async def test_what_the_environment_beats_is_told(own: Home, models: FakeModels, more: dict[str, str]) -> None:
    own.environ |= more
    with pytest.raises(OwnerMustAct, match=f"{next(iter(more))} is set in the environment"):
        await connect_model(own.setup, KEY)
    assert (models.count, own.keys) == (0, {})


async def test_where_the_file_cannot_be_written_the_text_to_paste_is_shown(
    own: Home, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    before = own.config
    monkeypatch.setattr("gateway.config.editing.config_file.replace_edited", read_only)
    connected = await connect_model(own.setup, KEY)

    assert (own.config, own.keys) == (before, {"OPENAI_API_KEY": KEY})
    assert connected.file.endswith("config.json")
    assert KEY not in connected.paste
    (own.folder / "config.json").write_text(connected.paste)
    assert own.setup.config().models.primary == "openai/gpt-5.6-terra"


async def test_a_server_of_ones_own_is_tested_and_saved_with_its_address(own: Home, models: FakeModels) -> None:
    connected = await connect_server(own.setup, f" {models.base_url} ", "lm_studio/qwen3")

    assert connected.who.startswith("LM Studio, lm_studio/qwen3 (answered in ")
    saved = json.loads(own.config)["models"]
    assert saved["primary"] == "lm_studio/qwen3"
    assert saved["providers"]["lm_studio"] == {"base_url": models.base_url}
    assert models.asked[-1].headers["Authorization"] == "Bearer none"

    await connect_server(own.setup, models.base_url, "house/big", "its-key-of-16-chars")
    assert models.asked[-1].headers["Authorization"] == "Bearer its-key-of-16-chars"
    assert own.keys == {"HOUSE_API_KEY": "its-key-of-16-chars"}
    assert "its-key" not in own.config


@pytest.mark.parametrize(
    ("address", "model", "advice"),
    [
        ("127.0.0.1:1234", "lm_studio/qwen3", "isn't an address"),
        ("http://127.0.0.1:1", "qwen3", "a name of your own"),
        ("http://127.0.0.1:1", "azure/gpt", "a name of your own"),
        ("http://127.0.0.1:1", "openai/gpt", "a name of your own"),
        ("http://127.0.0.1:1", "my server/gpt", "a name of your own"),
        ("http://127.0.0.1:1", "house/gpt", "can't be reached"),
    ],
)
async def test_a_server_that_cannot_be_asked_is_not_saved(own: Home, address: str, model: str, advice: str) -> None:
    before = own.config
    with pytest.raises(OwnerMustAct, match=advice):
        await connect_server(own.setup, address, model)
    assert own.config == before
