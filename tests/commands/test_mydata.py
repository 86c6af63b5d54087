"""A member takes their own data along, or asks for them to be erased; each after a yes to a card."""

from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from gateway.domain.channels.channel import Capabilities
from gateway.domain.memory.memories import NewMemory
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.store.memory import memories
from tests.fakes.channel import FakeChannel
from tests.flow.path import MEMBER, FakeModel, MessagePath, build

MINE = {"sender": MEMBER, "chat": MEMBER}


async def test_a_yes_sends_all_that_is_the_members_and_nothing_else(database: Database, workspace: Path) -> None:
    able = FakeChannel(capabilities=Capabilities(max_text=4096, max_file=10**6))
    path = await build(database, workspace, FakeModel(), channel=able)
    async with path.working():
        await path.ask("The owner's own words")
        await path.ask("I live at the harbour", **MINE)
        [(member,)] = await path.rows("select id from principals where role = 'member'")
        async with path.database.transaction() as tx:
            await memories.add(tx, member, NewMemory("Lives at the harbour", label=Label.KNOWN))
        card = await path.ask("/mydata export", **MINE)
        assert path.channel.taken == []
        await path.ask("/approve A1", **MINE)
        await path.channel.until(lambda texts: any("in the file below" in text for text in texts))
        assert "Write /mydata export" in await path.ask("/mydata", **MINE)
        assert "private chat" in await path.ask("/mydata export", sender=MEMBER, chat="-5", private=False)
        assert "supaclaw export DIR" in await path.ask("/mydata export")
    assert "You wrote /mydata." in card
    [packed] = path.channel.taken
    with ZipFile(BytesIO(packed)) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "Lives at the harbour" in found["memories.jsonl"]
    assert sorted(Path(name).suffix for name in found) == [".jsonl", ".jsonl", ".md"]
    assert any("I live at the harbour" in text for text in found.values())
    assert not any("owner's own words" in text for text in found.values())
    [told] = [each.text for each in path.channel.shown if "in the file below" in each.text]
    assert "1 memories and 1 conversations" in told


async def test_to_be_erased_becomes_a_question_to_the_owner_once(path: MessagePath) -> None:
    async with path.working():
        await path.ask("hello")
        await path.ask("I live at the harbour", **MINE)
        for name in ("A1", "A3"):
            assert "until the owner does it nothing is gone" in await path.ask("/mydata erase", **MINE)
            await path.ask(f"/approve {name}", **MINE)
            await path.settled()
        await path.questions.look()
        await path.channel.until(lambda texts: any("asks you to have all that is theirs erased" in t for t in texts))
        await path.ask("/approve A2")
        await path.channel.until(lambda texts: any(f"pairing erase fake:{MEMBER}" in text for text in texts))
    assert await path.rows("select count(*) from reviews where tool = 'erase_member'") == [(1,)]
    asked = [each for each in path.channel.shown if "all that is theirs" in each.text]
    assert [each.address.chat for each in asked] == ["1"]
