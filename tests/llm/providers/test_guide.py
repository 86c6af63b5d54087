import pytest

from gateway.domain.model import AssistantMessage, Prompt, Usage, UserMessage
from gateway.domain.settings import Params
from gateway.llm.catalog import VENDORS, vendor
from gateway.llm.endpoint import Endpoint
from gateway.llm.provider import ProviderReply
from gateway.llm.providers.guide import answer, build


@pytest.mark.parametrize("said", ["Hello!", "what is the weather?", "how do I connect a model?", ""])
def test_it_always_says_how_to_connect_and_what_still_works(said: str) -> None:
    text = answer(said)
    assert "No model is connected" in text
    assert "ANTHROPIC_API_KEY" in text
    assert "`/help`" in text
    assert len(text) < 1500


def test_a_greeting_is_returned() -> None:
    assert answer("hi there").startswith("Hello!")
    assert answer("what is hidden?").startswith("No model is connected")


@pytest.mark.parametrize("entry", [entry for entry in VENDORS if entry.keys], ids=lambda entry: entry.prefix)
def test_a_provider_asked_for_by_name_gets_its_own_steps(entry: object) -> None:
    assert isinstance(entry, type(vendor("openai")))
    text = answer(f"How do I connect {entry.prefix.upper()}?")
    assert f"`{entry.keys[0]}=…`" in text
    assert f'"{entry.prefix}": {{"api_key"' in text
    assert text.count('"api_key"') == 1


def test_ollama_needs_no_key_and_claude_means_anthropic() -> None:
    assert "ollama pull" in answer("how do i connect ollama?")
    assert "ANTHROPIC_API_KEY" in answer("can you use claude?")


async def test_it_answers_the_newest_message() -> None:
    prompt = Prompt((UserMessage("hello"), AssistantMessage("…"), UserMessage("connect groq")))
    guide = build(Endpoint(vendor("guide")))
    await guide.warm()
    *_, reply = [event async for event in guide.stream("guide/built-in", prompt, Params())]
    await guide.close()
    assert reply == ProviderReply(answer("connect groq"), usage=Usage())
    assert isinstance(reply, ProviderReply)
    assert "GROQ_API_KEY" in reply.text
