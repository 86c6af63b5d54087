from gateway.flow.live import MessageStored
from tests.flow.path import MEMBER, MessagePath


async def test_the_owner_is_told_where_the_owner_wrote_last(path: MessagePath) -> None:
    await path.say("hello")
    here = await path.tell("hello", chat="phone")
    await path.say("hello", chat=MEMBER, sender=MEMBER)
    await path.say("hello", chat="g", private=False)
    assert here.session_id is not None
    with path.live.subscribe(here.session_id) as events:
        await path.notices.tell_owner("config.json wasn't applied.")
        [stored] = events.ready()
    assert isinstance(stored, MessageStored)
    assert await path.rows("select kind, text from messages where id = $1", stored.id) == [
        ("notice", "config.json wasn't applied.")
    ]
    async with path.working():
        await path.channel.until(lambda texts: "config.json wasn't applied." in texts)
    [shown] = [m for m in path.channel.shown if m.text.startswith("config")]
    assert shown.address.chat == "phone"


async def test_an_owner_who_never_wrote_is_told_by_the_log_alone(path: MessagePath) -> None:
    await path.say("hello", chat=MEMBER, sender=MEMBER)
    await path.notices.tell_owner("config.json wasn't applied.")
    assert await path.rows("select count(*) from messages where kind = 'notice'") == [(0,)]


async def test_a_notice_is_no_reason_for_a_turn(path: MessagePath) -> None:
    async with path.working():
        await path.ask("hello")
        await path.notices.tell_owner("something")
        await path.ask("again")
    assert "something" not in repr(path.model.prompts[1])
