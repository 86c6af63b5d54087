"""/voice: the owner chooses for a chat; nobody else makes answers read aloud more often than is configured."""

import pytest

from gateway.config.model import Config
from gateway.domain.settings import VoiceReply, voice_reply
from tests.flow.path import MEMBER, MessagePath, restarted


def configured(path: MessagePath, reply: str) -> None:
    voice = {"voice": {"reply": reply, "model": "openai/tts-1"}}
    path.current.config = Config.model_validate(path.current.config.model_dump() | voice)


async def test_the_owner_chooses_for_this_chat(path: MessagePath) -> None:
    assert "chooses a model in voice.model" in await path.ask("/voice always")
    configured(path, "off")
    assert (await path.ask("/voice")).startswith("Voice messages in this chat: never, as voice.reply")
    assert "There is no such choice" in await path.ask("/voice loud")
    assert "for answers to voice notes, until /voice default" in await path.ask("/voice notes")
    again = await restarted(path)
    configured(again, "off")
    assert "for answers to voice notes, until" in await again.ask("/voice")
    assert "never, as voice.reply" in await again.ask("/voice default")
    assert await path.rows("select voice from addresses") == [(None,)]


async def test_a_member_chooses_less_than_is_configured_and_never_more(path: MessagePath) -> None:
    me = {"chat": MEMBER, "sender": MEMBER}
    configured(path, "voice")
    assert "Only the owner" in await path.ask("/voice always", **me)
    assert "never, until /voice default" in await path.ask("/voice off", **me)
    configured(path, "always")
    assert "for answers to voice notes, until" in await path.ask("/voice notes", **me)
    configured(path, "off")
    assert "never, until" in await path.ask("/voice", **me)


@pytest.mark.parametrize(
    ("chosen", "usual", "owner", "when"),
    [
        (None, "voice", False, "voice"),
        ("always", "off", True, "always"),
        ("always", "off", False, "off"),
        ("voice", "always", False, "voice"),
        ("off", "always", True, "off"),
    ],
)
def test_what_holds(chosen: VoiceReply | None, usual: VoiceReply, owner: bool, when: VoiceReply) -> None:
    assert voice_reply(chosen, usual, owner=owner) == when
