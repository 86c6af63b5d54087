"""The examples: a channel in one file, a tool as a file, a team of agents."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import channels
from gateway.config.channels import channel_names, parse_channel, settings_model
from gateway.domain.channels.channel import NoFacts, Outgoing
from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.errors import TryAgainLater

EXAMPLES = Path(__file__).parents[2] / "examples"
ADA = Address("folder", "letters", "ada")


class Silent:
    """A logger that keeps nothing."""

    def __getattr__(self, _: str) -> "Silent":
        return self

    def __call__(self, *_: object, **__: object) -> None:
        """Log nothing."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where letters are left; the example is found as if it were in `channels/`."""
    channels.__path__.append(str(EXAMPLES / "channels"))
    yield tmp_path / "letters"
    channels.__path__.remove(str(EXAMPLES / "channels"))
    sys.modules.pop("channels.folder", None)


def read(folder: Path) -> list[str]:
    """The names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


async def test_the_channel_accepts_letters_in_order_once_and_answers_once(folder: Path) -> None:
    assert "folder" in channel_names()
    settings = parse_channel("folder", {"path": str(folder), "allow": ["ada"]}, settings_model("folder"))
    channel = sys.modules["channels.folder"].create(settings, commands=(), log=Silent(), data=folder, facts=NoFacts())
    await channel.open()
    for number in (10, 9):
        await asyncio.to_thread((folder / f"ada-{number}.txt").write_text, f"letter {number}")
    await asyncio.to_thread((folder / "notes.md").write_text, "no letter")
    accepted: list[Inbound] = []
    done = asyncio.Event()
    refusals = iter([True])

    async def accept(batch: Sequence[Inbound]) -> None:
        if next(refusals, False):
            raise TryAgainLater("the database is away")
        accepted.extend(batch)
        done.set()

    receiving = asyncio.create_task(channel.receive(accept))
    await asyncio.wait_for(done.wait(), 30)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)

    assert [(each.text, each.platform_id, each.sender.id) for each in accepted] == [
        ("letter 9", "ada-9", "ada"),
        ("letter 10", "ada-10", "ada"),
    ]
    names = [await channel.send(Outgoing(ADA, "Thank you.", key="k/1")) for _ in range(2)]
    assert names == ["ada-k.1.answer.md"] * 2
    assert read(folder) == ["ada-10.read", "ada-9.read", names[0], "notes.md"]


@pytest.mark.parametrize(("count", "code"), [(3, 0), (0, 1), (21, 1)])
def test_the_tool_rolls_as_many_dice_as_it_is_asked_for(count: int, code: int) -> None:
    script = EXAMPLES / "tools" / "dice" / "roll.py"
    asked = json.dumps({"count": count})

    done = subprocess.run([sys.executable, script], input=asked, capture_output=True, text=True, check=False)

    assert done.returncode == code
    if code == 0:
        result = json.loads(done.stdout)
        assert len(result["dice"]) == count
        assert result["sum"] == sum(result["dice"])
