from typing import Any

import pytest

from gateway.commands.model import matching
from gateway.config.model import Config
from gateway.domain.conversation.inbound import Address
from gateway.llm.client import Description
from gateway.llm.errors import Cooling, ErrorKind
from gateway.store.delivery import addresses
from tests.flow.path import MEMBER, OWNER, FakeModel, MessagePath, build, restarted

NAMES = ("openai/gpt-5.6-terra", "openai/gpt-5.6-luna", "anthropic/claude-opus-4-6", "ollama/qwen3:8b")


async def test_it_names_the_model_and_why_it_was_chosen(path: MessagePath) -> None:
    assert (await path.ask("/model")).split("\n") == [
        "Model: fake (a test)",
        "/model NAME, or NAME until 18:00, switches this chat: fake",
        "For all chats, set models.primary in config.json; it applies at once.",
    ]


class Tired(FakeModel):
    def describe(self) -> Description:
        cooling = Cooling("big", ErrorKind.RATE_LIMIT, 41.6)
        return Description("small", "big is cooling down", ("big", "small", "last"), (cooling,), speed=41.6)


async def test_it_shows_the_chain_and_who_is_set_aside(path: MessagePath) -> None:
    path = await build(path.database, path.workspace, Tired())
    assert (await path.ask("/model")).split("\n")[:3] == [
        "Model: small (big is cooling down; 42 tokens/s)",
        "Then: big, last",
        f"big is skipped for 42 s ({ErrorKind.RATE_LIMIT.value})",
    ]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("openai/gpt-5.6-luna", ["openai/gpt-5.6-luna"]),
        ("gpt-5.6-luna", ["openai/gpt-5.6-luna"]),
        ("Opus 4.6", ["anthropic/claude-opus-4-6"]),
        ("4.6 claude", ["anthropic/claude-opus-4-6"]),
        ("qwen", ["ollama/qwen3:8b"]),
        ("gpt", ["openai/gpt-5.6-terra", "openai/gpt-5.6-luna"]),
        ("gtp-5.6-tera", ["openai/gpt-5.6-terra"]),
        ("mixtral", []),
    ],
)
def test_names_are_found_by_what_people_say(said: str, found: list[str]) -> None:
    assert matching(said, NAMES) == found


class Many(FakeModel):
    """Says which model and level it was asked for."""

    name, level = NAMES[0], ""

    def describe(self) -> Description:
        return Description(self.name, "a test", (self.name, *NAMES), ())

    def with_primary(self, name: str | None) -> Any:
        made = Many(self.answer)
        made.name = name or self.name
        return made

    def thinking(self, level: str) -> Any:
        self.level = level
        return self


async def chosen(path: MessagePath, chat: str = OWNER) -> tuple[str | None, str | None, str, str]:
    """The choice of a chat, and what a turn there makes of it."""
    async with path.database.connection() as conn:
        at = await addresses.find(conn, Address("fake", "bot", chat))
    assert at is not None
    path.current.model.level = ""
    model: Any = path.current.chat_model(None, at, owner=chat == OWNER)
    return at.model, at.thinking, model.name, model.level


def let_choose(path: MessagePath, *models: str) -> None:
    raw = path.current.config.model_dump() | {"models": {"embedding": "none", "members": models}}
    path.current.config = Config.model_validate(raw)


async def test_the_owner_switches_this_chat_and_how_much_it_thinks(path: MessagePath) -> None:
    path = await build(path.database, path.workspace, Many())
    assert "anthropic/claude-opus-4-6, until /model default" in await path.ask("/model opus")
    assert "high, until /think default" in await path.ask("/think high")
    assert (await path.ask("/model")).startswith("Model of this chat: anthropic/claude-opus-4-6")
    assert "gpt-5.6-terra or openai/gpt-5.6-luna" in await path.ask("/model gpt")
    assert "There is no such model" in await path.ask("/model mixtral")
    assert "There is no such level" in await path.ask("/think huge")
    assert await chosen(path) == (NAMES[2], "high", NAMES[2], "high")
    assert "openai/gpt-9" in await path.ask("/model openai/gpt-9")
    await path.ask("/model default")
    await path.ask("/think default")
    assert await chosen(path) == (None, None, NAMES[0], "")


async def test_a_choice_ends_at_its_time_and_is_told_until_when(path: MessagePath) -> None:
    path = await build(path.database, path.workspace, Many())
    await path.ask("/zone Asia/Kolkata")
    assert "opus-4-6, until Fri 1 Mar 2030 09:00 Asia/Kolkata or /model" in await path.ask(
        "/model opus until 2030-03-01T09:00"
    )
    assert "opus-4-6, until Fri 1 Mar 2030 09:00 Asia/Kolkata or /model" in await path.ask("/model")
    for wrong in ("until teatime", "until 2020-01-01T09:00", "for ages"):
        assert (await path.ask(f"/model luna {wrong}")).startswith("Nothing is changed: ")
    assert await chosen(await restarted(path, Many())) == (NAMES[2], None, NAMES[2], "")
    await path.rows("update addresses set model_until = now() - interval '1 second' returning id")
    assert await chosen(path) == (NAMES[2], None, NAMES[0], "")
    assert (await path.ask("/model")).startswith("Model: openai/gpt-5.6-terra")
    assert "luna, until " in await path.ask("/model luna for 2 hours")
    await path.ask("/model qwen")
    assert await path.rows("select model, model_until from addresses") == [(NAMES[3], None)]


async def test_a_choice_whose_provider_is_off_does_not_count(path: MessagePath) -> None:
    path = await build(path.database, path.workspace, Many())
    await path.ask("/model qwen until 2030-03-01T09:00")
    off = {"models": {"embedding": "none", "providers": {"ollama": {"enabled": False}}}}
    path.current.config = Config.model_validate(path.current.config.model_dump() | off)
    assert await chosen(path) == (NAMES[3], None, NAMES[0], "")
    assert (await path.ask("/model")).startswith("Model: openai/gpt-5.6-terra")


async def test_a_member_chooses_among_those_for_members_as_long_as_they_are(path: MessagePath) -> None:
    path = await build(path.database, path.workspace, Many())
    me = {"chat": MEMBER, "sender": MEMBER}
    assert "members choose by models.members" in await path.ask("/model opus", **me)
    assert "Only the owner sets how much" in await path.ask("/think high", **me)
    let_choose(path, NAMES[3])
    assert "There is no such model" in await path.ask("/model opus", **me)
    assert "There is no such model" in await path.ask("/model openai/gpt-9", **me)
    assert "Model of this chat from the next answer on: ollama/qwen3:8b" in await path.ask("/model qwen", **me)
    assert "low, until" in await path.ask("/think low", **me)
    assert "There is no such model" in await path.ask("/model opus until 2030-03-01T09:00", **me)
    assert "until Fri 1 Mar 2030 09:00 UTC" in await path.ask("/model qwen until 2030-03-01T09:00", **me)
    assert await chosen(path, MEMBER) == (NAMES[3], "low", NAMES[3], "low")
    let_choose(path)
    assert await chosen(path, MEMBER) == (NAMES[3], "low", NAMES[0], "")
    assert (await path.ask("/model", **me)).startswith("Model: openai/gpt-5.6-terra")
