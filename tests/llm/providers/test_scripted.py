import pytest

from gateway.domain.settings import CallParams
from gateway.llm.errors import ModelError
from gateway.llm.provider import ProviderReply
from gateway.llm.providers.scripted import ScriptedProvider, build
from gateway.llm.vendors import Endpoint, vendor
from tests.llm.chain import HELLO


async def test_a_function_may_write_the_script() -> None:
    provider = ScriptedProvider(lambda model, prompt: f"{model} {len(prompt.messages)}")
    *_, reply = [event async for event in provider.stream("x", HELLO, CallParams())]
    assert reply == ProviderReply("x 1")


async def test_a_script_ends() -> None:
    provider = ScriptedProvider([])
    with pytest.raises(ModelError, match="no more lines"):
        await anext(provider.stream("x", HELLO, CallParams()))


async def test_it_can_be_configured_as_a_model() -> None:
    provider = build(Endpoint(vendor("scripted")))
    await provider.warm()
    *_, reply = [event async for event in provider.stream("scripted/ok", HELLO, CallParams())]
    await provider.close()
    assert reply == ProviderReply("ok")
