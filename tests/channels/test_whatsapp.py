"""The link: logging in, staying connected, and what only the owner can mend."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from channels.whatsapp.channel import WhatsApp
from channels.whatsapp.store import Store
from gateway.domain.channels.channel import Login, LoginChannel, Outgoing, SendDelayed
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import OwnerMustAct
from tests.contract.under_test import Gateway
from tests.contract.whatsapp import QUICK, linked, opened, receiving, whatsapp_on
from tests.fakes.eventually import eventually
from tests.fakes.log import Log
from tests.fakes.whatsapp import CODE, FakeWhatsApp, Message, event


@pytest.fixture
def whatsapp() -> Iterator[FakeWhatsApp]:
    with FakeWhatsApp() as whatsapp:
        yield whatsapp


@pytest.fixture
def log() -> Log:
    return Log()


async def becomes(channel: WhatsApp, state: str) -> Login:
    await eventually(lambda: channel.login().state == state)
    return channel.login()


async def stopped(channel: WhatsApp) -> str:
    """Why the reception ended."""
    async with asyncio.timeout(10):
        with pytest.raises(OwnerMustAct, match=r"^[^\n]+$") as stop:
            await channel.receive(Gateway().accept)
    return str(stop.value)


# --- logging in ---


async def test_without_an_account_nothing_is_asked_of_whatsapp(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    whatsapp.linked = False
    async with opened(tmp_path) as channel, receiving(channel, Gateway()) as task:
        await asyncio.wait({task}, timeout=0.1)
        assert not task.done()
        assert channel.trouble == "logged out: run `supaclaw channel login whatsapp`"
        assert channel.heard_at is not None
        assert whatsapp.sessions == 0
        with pytest.raises(SendDelayed):
            await channel.send(Outgoing(Address("whatsapp", "", "77"), "hello", "k"))


async def test_a_login_shows_codes_until_the_phone_takes_one(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    whatsapp.linked = False
    async with opened(tmp_path) as channel:
        assert isinstance(channel, LoginChannel)
        assert channel.login().state == "logged out"
        assert (await becomes(channel, "waiting")).qr.startswith("2@code")
        await eventually(lambda: channel.login().qr == f"2@code{whatsapp.codes - 1},key")
        whatsapp.scan()
        assert await becomes(channel, "connected") == Login("connected", account=whatsapp.number)
        assert channel.trouble == ""


async def test_an_account_is_connected_again_at_the_next_start(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path):
        pass
    async with opened(tmp_path) as channel:
        await eventually(lambda: channel.trouble == "")


async def test_codes_that_nobody_takes_give_way_to_new_ones(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    whatsapp.linked, whatsapp.last_code = False, 0.05
    async with opened(tmp_path, timeouts=replace(QUICK, first_code=0.1, next_code=0.05)) as channel:
        await eventually(lambda: channel.login().state == "waiting" and whatsapp.sessions > 1)


async def test_codes_are_no_longer_fetched_when_nobody_looks(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    whatsapp.linked, whatsapp.last_code = False, 0.05
    async with opened(tmp_path, timeouts=replace(QUICK, first_code=0.1, next_code=0.05, interest=0.02)) as channel:
        await becomes(channel, "waiting")
        await eventually(lambda: channel.trouble.startswith("logged out"))


async def test_a_code_can_be_typed_on_the_phone(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    whatsapp.linked = False
    async with opened(tmp_path) as channel:
        assert await channel.request_code("+49 155 50001") == CODE
        assert whatsapp.phone == "4915550001"
        assert channel.login().code == CODE
        whatsapp.scan()
        assert (await becomes(channel, "connected")).code == ""


async def test_a_number_that_is_none_is_said_to_be_none(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    whatsapp.linked = False
    async with opened(tmp_path) as channel:
        with pytest.raises(OwnerMustAct, match="no code for 12: phone number too short"):
            await channel.request_code("12")


async def test_a_linked_device_needs_no_code(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path) as channel:
        with pytest.raises(OwnerMustAct, match="already linked"):
            await channel.request_code("4915550001")


async def test_a_login_that_fails_says_why_and_can_be_tried_again(
    whatsapp: FakeWhatsApp, tmp_path: Path, log: Log
) -> None:
    whatsapp.linked, whatsapp.last_code = False, 0.0
    async with opened(tmp_path, log) as channel:
        await becomes(channel, "waiting")
        whatsapp.push(event("PairStatus", Status=1, Error="database is locked"))
        assert await log.heard("whatsapp.trouble") == {"why": "the login failed: database is locked"}
        await eventually(lambda: whatsapp.sessions == 2)


async def test_logging_out_forgets_the_account(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path, timeouts=replace(QUICK, interest=0.0)) as channel:
        await channel.logout()
        await eventually(lambda: channel.trouble.startswith("logged out"))
        assert not whatsapp.linked
        assert Store(tmp_path).account() is None


async def test_logging_out_needs_a_connection(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path) as channel:
        whatsapp.go_down()
        await eventually(lambda: channel.trouble != "")
        with pytest.raises(OwnerMustAct, match="unlink the device on the phone"):
            await channel.logout()


# --- what only the owner can mend ---


async def test_a_device_unlinked_on_the_phone_can_be_linked_again(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path, timeouts=replace(QUICK, interest=0.0)) as channel:
        whatsapp.unlink()
        whatsapp.push(event("Connected", status=True))
        assert "`supaclaw channel login whatsapp`" in await stopped(channel)
        await channel.close()
        await channel.open()
        assert "unlinked" in channel.trouble
        assert whatsapp.sessions == 1
        await becomes(channel, "waiting")
        whatsapp.scan()
        await becomes(channel, "connected")


@pytest.mark.parametrize(
    ("kind", "facts", "cure"),
    [
        ("StreamReplaced", {}, "stop it, then restart"),
        ("ClientOutdated", {}, "update supaclaw"),
        ("TemporaryBan", {"Code": 1, "Expire": 7200}, "for 2 h"),
    ],
)
async def test_trouble_that_stays_is_told_with_its_cure_and_not_tried_again(
    whatsapp: FakeWhatsApp, tmp_path: Path, kind: str, facts: dict[str, int], cure: str
) -> None:
    async with linked(tmp_path) as channel:
        whatsapp.push(event(kind, **facts))
        assert cure in await stopped(channel)
        assert cure in channel.trouble
        await channel.close()
        await channel.open()
        async with receiving(channel, Gateway()) as task:
            await asyncio.wait({task}, timeout=0.1)
            assert whatsapp.sessions == 1
            assert channel.heard_at is not None


@pytest.mark.parametrize(("kind", "cure"), [("TemporaryBan.Code", "banned"), ("LoggedOut.Reason", "unlinked")])
async def test_what_go_cannot_pass_on_is_told_too(whatsapp: FakeWhatsApp, tmp_path: Path, kind: str, cure: str) -> None:
    async with linked(tmp_path) as channel:
        whatsapp.give_up(f"proto: required field neonize.{kind} not set")
        assert cure in await stopped(channel)


async def test_a_second_process_is_told_who_has_the_session(whatsapp: FakeWhatsApp, tmp_path: Path, log: Log) -> None:
    assert whatsapp.linked
    async with opened(tmp_path, log):
        other = whatsapp_on(tmp_path, log)
        with pytest.raises(OwnerMustAct, match=r"another program \(pid \d+\) uses the WhatsApp session"):
            await other.open()
        assert "another program" in other.trouble
        assert "another program" in other.login().problem
        with pytest.raises(OwnerMustAct, match="another program"):
            await other.request_code("4915550001")
        with pytest.raises(OwnerMustAct, match="not connected"):
            await other.logout()
        await other.close()


# --- staying connected ---


async def test_whatever_go_does_there_is_a_next_session(whatsapp: FakeWhatsApp, tmp_path: Path, log: Log) -> None:
    async with linked(tmp_path, log) as channel:
        for session in (2, 3):
            whatsapp.give_up("websocket closed")
            await eventually(lambda n=session: whatsapp.sessions == n and channel.trouble == "")
        assert len(log.named("whatsapp.trouble")) == 2
        assert len(log.named("whatsapp.recovered")) == 2


async def test_a_start_without_a_network_is_tried_again(whatsapp: FakeWhatsApp, tmp_path: Path, log: Log) -> None:
    whatsapp.online = False
    async with opened(tmp_path, log) as channel:
        await eventually(lambda: "no such host" in channel.login().problem and whatsapp.sessions > 2)
        assert len(log.named("whatsapp.trouble")) == 1
        whatsapp.online = True
        await becomes(channel, "connected")


async def test_go_is_not_asked_while_nothing_can_be_reached(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    tries: list[float] = []

    async def nowhere() -> None:
        tries.append(time.monotonic())
        raise OSError("network is unreachable")

    async with opened(tmp_path, timeouts=replace(QUICK, reach=nowhere)) as channel:
        channel.login()
        await eventually(lambda: len(tries) > 3)
        assert channel.trouble == "starting: WhatsApp cannot be reached: network is unreachable"
        assert whatsapp.sessions == 0


async def test_a_refused_connection_is_tried_again(whatsapp: FakeWhatsApp, tmp_path: Path, log: Log) -> None:
    async with linked(tmp_path, log) as channel:
        whatsapp.push(event("ConnectFailure", Reason=1, Message="bad day"))
        await eventually(lambda: whatsapp.sessions == 2 and channel.trouble == "")
        assert "bad day" in str(log.named("whatsapp.trouble")[0]["why"])


async def test_a_silent_connection_is_asked_for_an_answer(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path, timeouts=replace(QUICK, ping=0.05)) as channel:
        before = channel.heard_at
        await eventually(lambda: whatsapp.pings > 1)
        assert before is not None
        assert channel.heard_at is not None
        assert channel.heard_at > before


async def test_closing_does_not_wait_for_go_which_never_returns_while_it_shows_codes(
    whatsapp: FakeWhatsApp, tmp_path: Path
) -> None:
    whatsapp.linked = False
    async with opened(tmp_path) as channel:
        await becomes(channel, "waiting")
    async with opened(tmp_path) as channel:
        assert channel.trouble.startswith("logged out")


async def test_the_session_is_only_ours_to_read(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    assert whatsapp.linked
    folder = tmp_path / "channels" / "whatsapp"
    async with linked(folder):
        assert {path.name for path in folder.iterdir()} == {"account.json", "lock", "spool"}
    assert folder.stat().st_mode & 0o077 == 0


# --- nothing is lost ---


def after_two_seconds(look: Callable[[], int]) -> int:
    """The event loop does nothing meanwhile."""
    time.sleep(2)
    return look()


async def test_a_busy_event_loop_keeps_no_message_from_the_disk(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    gateway = Gateway()
    async with linked(tmp_path) as channel, receiving(channel, gateway):
        for number in range(50):
            whatsapp.say(str(number))
        kept = after_two_seconds(lambda: len(list((tmp_path / "spool").glob("*.event"))))
        received = await gateway.received(50)
    assert kept == 50
    assert [inbound.text for inbound in received] == [str(number) for number in range(50)]


async def test_a_full_disk_is_waited_for(
    whatsapp: FakeWhatsApp, tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    from channels.whatsapp import store

    write, failures = store._write, [OSError("No space left on device")]

    def full(path: Path, data: bytes) -> None:
        if failures and path.suffix == ".event":
            raise failures.pop()
        write(path, data)

    monkeypatch.setattr(store, "_write", full)
    gateway = Gateway()
    async with linked(tmp_path, log) as channel, receiving(channel, gateway):
        whatsapp.say("first")
        whatsapp.say("second")
        assert [inbound.text for inbound in await gateway.received(2)] == ["first", "second"]
        assert "No space left" in str(log.named("whatsapp.not_taken")[0]["why"])


async def test_nothing_is_received_where_its_keys_could_not_be_saved(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    """neonize acknowledges a message that it could not decrypt for want of room."""
    store, gateway = Store(tmp_path), Gateway()
    channel = WhatsApp(store=store, log=Log(), timeouts=QUICK)
    await channel.open()
    async with receiving(channel, gateway):
        await becomes(channel, "connected")
        store.room = 2**62
        await eventually(lambda: "64 MB are free" in channel.trouble)
        sessions = whatsapp.sessions
        whatsapp.say("kept by WhatsApp")
        assert whatsapp.pending
        store.room = 0
        [received] = await gateway.received(1)
    await channel.close()
    assert (received.text, whatsapp.sessions) == ("kept by WhatsApp", sessions + 1)


async def test_what_breaks_whatsapps_rules_is_left_out(whatsapp: FakeWhatsApp, tmp_path: Path, log: Log) -> None:
    gateway = Gateway()
    async with linked(tmp_path, log) as channel, receiving(channel, gateway):
        whatsapp.say("no such time", sent_at=2**62)
        whatsapp.say("after")
        assert [inbound.text for inbound in await gateway.received(1)] == ["after"]
        assert "out of range" in str(log.named("whatsapp.unreadable"))


async def test_what_an_account_left_that_is_unknown_waits_for_a_login(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path):
        whatsapp.say("keep me")
        await eventually(lambda: whatsapp.quiet)
    (tmp_path / "account.json").unlink()
    gateway = Gateway()
    async with opened(tmp_path) as channel, receiving(channel, gateway):
        await becomes(channel, "connected")
        assert [inbound.text for inbound in await gateway.received(1)] == ["keep me"]


# --- the edges ---


async def test_a_code_that_never_comes_is_given_up(
    whatsapp: FakeWhatsApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.whatsapp.link.CODE_SECONDS", 0.2)
    whatsapp.online = whatsapp.linked = False
    async with opened(tmp_path) as channel:
        await eventually(lambda: "no such host" in channel.login().problem)
        with pytest.raises(OwnerMustAct, match="no such host"):
            await channel.request_code("4915550001")


async def test_a_logout_that_whatsapp_does_not_answer_is_told(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    async with linked(tmp_path) as channel:
        whatsapp.fail("error sending logout request: info query timed out")
        with pytest.raises(OwnerMustAct, match="does not answer: error sending logout request"):
            await channel.logout()
        assert channel.login().state == "connected"


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:1"])
async def test_whatsapp_is_within_reach_when_its_port_answers(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """Behind a proxy nobody can tell, so neonize tries."""
    from channels.whatsapp import sdk

    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        monkeypatch.setattr(sdk, "HOST", "127.0.0.1")
        monkeypatch.setattr(sdk, "PORT", server.sockets[0].getsockname()[1])
        monkeypatch.setenv("https_proxy", "")
        await sdk.reach()
    monkeypatch.setenv("https_proxy", proxy)
    if proxy:
        await sdk.reach()
    else:
        with pytest.raises(OSError, match=r"refused|failed"):
            await sdk.reach()


async def test_a_chat_whose_messages_disappear_gets_answers_that_do(whatsapp: FakeWhatsApp, tmp_path: Path) -> None:
    def timer() -> tuple[int, int]:
        context = whatsapp.sent[-1].message.extendedTextMessage.contextInfo
        return context.expiration, context.ephemeralSettingTimestamp

    async def answer(channel: WhatsApp) -> None:
        """Try again as the sender does: a session that has just begun is not always connected yet."""
        for pause in 0.2, 1, 5:
            with suppress(SendDelayed):
                await channel.send(Outgoing(Address("whatsapp", "", "77"), "hello", "k"))
                return
            await asyncio.sleep(pause)
        pytest.fail("the session is never connected")

    hidden = Message()
    hidden.ephemeralMessage.message.extendedTextMessage.text = "hi"
    context = hidden.ephemeralMessage.message.extendedTextMessage.contextInfo
    context.expiration, context.ephemeralSettingTimestamp = 86400, 1795726000
    async with linked(tmp_path) as channel, receiving(channel, gateway := Gateway()):
        await answer(channel)
        assert timer() == (0, 0)
        whatsapp.say(content=hidden)
        await eventually(lambda: len(gateway.accepted) == 1)
        await answer(channel)
        assert timer() == (86400, 1795726000)
    async with linked(tmp_path) as channel, receiving(channel, gateway := Gateway()):
        await answer(channel)
        assert timer() == (86400, 1795726000)
        whatsapp.say("the timer is off")
        await eventually(lambda: len(gateway.accepted) == 1)
        await answer(channel)
        assert timer() == (0, 0)
