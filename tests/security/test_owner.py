"""Finding 1: the owner is whom config.json, `supaclaw owner set` or /link names, never who comes first in `allow`."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.app.checks.database import check_database
from gateway.config.channels import check_channels, check_owner, parse_channel, settings_model
from gateway.config.model import Config
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import ConfigError
from gateway.domain.people.access import Access, owner_problems
from gateway.domain.principals import Role
from gateway.flow.people import meet
from gateway.store.connection.pool import Database
from gateway.store.migrate import migrate
from gateway.store.people import accounts
from tests.app.checks.contexts import examine_with
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.flow.path import MEMBER, OWNER, FakeModel, build, message
from tests.journeys.process import FRIEND, GatewayProcess, configured, until

ME = 77


@pytest.fixture
async def process(tmp_path: Path, dsn: str) -> AsyncIterator[GatewayProcess]:
    process = GatewayProcess(tmp_path, dsn)
    yield process
    await process.close()


async def identities(process: GatewayProcess) -> list[str]:
    [row] = await process.rows("select identities from supaclaw.principals where role = 'owner'")
    return list(row["identities"])


async def test_a_friend_in_allow_is_a_member_and_start_tells_how_to_become_the_owner(process: GatewayProcess) -> None:
    """The configuration of docs/access.md, as a stranger copies it."""
    async with FakeTelegram() as telegram, FakeModels() as models:
        config = configured(telegram, models)
        del config["owner"]["telegram"]
        config["channels"]["telegram"] |= {"access": "pairing", "allow": [str(FRIEND)]}
        process.configure(config)
        await process.start()
        told = await process.hears("owner.unsettled")
        assert "nobody on telegram is known to be you; set owner.telegram to your own id" in told
        telegram.say("/budget", FRIEND)
        telegram.say("hello mk1x", FRIEND)
        await telegram.wait_for(lambda tg: any(sent.text.endswith("fin1x") for sent in tg.sent))
        assert await identities(process) == []

        doctor = await process.command("doctor")
        assert "nobody on telegram is known to be you" in doctor.told
        async with process.http() as client:
            [line] = (await client.get("/api/status")).json()["unsettled"]
        assert "owner.telegram" in line

        offered = await process.command("chat", "/link")
        [code] = re.findall(r"/link ([A-Z2-9]{8}) ", offered.told)
        telegram.say(f"/link {code}", ME)

        async def asked() -> bool:
            return bool(await process.rows("select from links where sender is not null"))

        await until(asked)
        await process.command("chat", f"/link join {code}")
        await telegram.wait_for(lambda tg: any(sent.chat == ME for sent in tg.sent))
        assert await identities(process) == [f"telegram:{ME}"]
        assert "known to be you" not in (await process.command("doctor")).told


async def test_an_id_that_differs_is_told_everywhere_until_the_command_settles_it(process: GatewayProcess) -> None:
    async with FakeTelegram() as telegram, FakeModels() as models:
        config = configured(telegram, models)
        config["owner"]["telegram"] = str(FRIEND)
        process.configure(config)
        await process.start()
        config["owner"]["telegram"] = str(ME)
        process.configure(config)
        told = await process.hears("owner.unsettled")
        assert f"`supaclaw owner set telegram {ME}`" in told
        assert f"`supaclaw owner set telegram {ME}`" in " ".join((await process.command("doctor")).told.split())
        shown = await process.command("owner", "show")
        assert f"owner.telegram is {ME}, but the owner's id in the database is {FRIEND}" in shown.told
        assert await identities(process) == [f"telegram:{FRIEND}"]

        done = await process.command("owner", "set", "telegram", str(ME))
        assert done.told == f"the owner on telegram is {ME}, no longer {FRIEND}\n"
        telegram.say("/budget", ME)  # at once, without a restart
        await telegram.wait_for(lambda tg: any(sent.chat == ME and "Today: $0.00" in sent.text for sent in tg.sent))
        async with process.http() as client:
            assert (await client.get("/api/status")).json()["unsettled"] == []


async def test_the_page_shows_what_is_to_be_settled(process: GatewayProcess) -> None:
    async with FakeTelegram() as telegram:
        config = configured(telegram)
        del config["owner"]["telegram"]
        process.configure(config)
        await process.start()
        async with process.http() as client:
            link = (await client.post("/api/login-links")).json()["url"]
            del client.headers["Authorization"]
            host = urlsplit(link).netloc
            client.headers["Host"] = host
            headers = {"Origin": f"http://{host}"}
            await client.post("/login", json={"secret": link.partition("#t=")[2]}, headers=headers)
            shown = (await client.get("/people")).text
    assert "nobody on telegram is known to be you" in shown


async def test_owners_of_before_stay_and_are_asked_about_once(empty_dsn: str) -> None:
    async with await Database.connect(empty_dsn) as database:
        await migrate(database, upto=8)
        async with database.transaction() as tx:
            insert = (
                "insert into principals (id, role, name, identities) values (gen_random_uuid(), 'owner', 'Ada', $1)"
            )
            await tx.execute(insert, [f"telegram:{FRIEND}", "slack:U1"])
        await migrate(database)
        people = await meet(database, "Ada", {"slack": "U1"})
        people.allow({"telegram": Access(allow=frozenset({str(FRIEND)}))})
        at = replace(message("hi", sender=str(FRIEND)), address=Address("telegram", "bot", str(FRIEND)))
        assert people.role(at) is Role.OWNER
        [line] = people.unsettled({"slack": "U1"}, ["telegram", "slack"])
        assert line.startswith(f"{FRIEND} counts as you on telegram, perhaps only because `allow` began with it; ")
        assert f"`supaclaw owner set telegram {FRIEND}`" in line

        await database.run(lambda tx: accounts.set_owner(tx, "telegram", str(FRIEND)))
        await people.refresh(database)
        assert people.unsettled({}, ["telegram", "slack"]) == []
        again = await meet(database, "Ada", {})
        assert again.unsettled({}, ["telegram", "slack"]) == []


async def test_who_was_the_owner_is_told_nothing_of_the_owners(database: Database, tmp_path: Path) -> None:
    """A friend who was the owner by mistake wrote last; the owner has no other chat yet."""
    path = await build(database, tmp_path, FakeModel())
    path.people.allow({"fake": Access(allow=frozenset({OWNER}))})
    async with path.working():
        await path.ask("hello")
        await path.database.run(lambda tx: accounts.set_owner(tx, "fake", MEMBER))
        await path.people.refresh(path.database)
        await path.notices.tell_owner("a secret of the owner's")
        assert path.people.role(message("hi")) is Role.MEMBER
    assert await path.rows("select text from messages where text like 'a secret%'") == []
    here = "select session_id from addresses where chat = $1"
    assert await path.rows(f"select label from sessions where id = ({here})", OWNER) == [(1,)]


@pytest.mark.parametrize(
    ("named", "enabled", "known", "unconfirmed", "told"),
    [
        ({}, (), (), (), ""),
        ({"a": "1"}, ("a",), ("a:1",), ("a:1",), ""),
        ({"a": "1"}, ("a",), (), (), ""),
        ({"a": "1"}, ("a",), ("a:2", "a:1"), (), ""),
        ({}, ("a",), ("a:1",), (), ""),
        ({}, (), ("a:1",), ("a:1",), "owner set a 1`"),
        ({"a": "2"}, ("a",), ("a:1",), (), "owner set a 2`"),
        ({"a": "2"}, ("a",), ("a:1",), ("a:1",), "owner set a 2`"),
        ({"a": "2"}, ("a",), ("a:1", "a:2"), ("a:1",), "owner set a 2`"),
        ({}, ("a",), (), (), "set owner.a"),
    ],
)
def test_what_is_to_be_settled(
    named: dict[str, str], enabled: tuple[str, ...], known: tuple[str, ...], unconfirmed: tuple[str, ...], told: str
) -> None:
    lines = list(owner_problems(named, enabled, known, unconfirmed))
    assert len(lines) == bool(told)
    assert all(told in line and line.count("; ") == 1 for line in lines)


PEOPLE = {
    "telegram": (["123456789", "1"], ["@ada", "+4915112345678", "0", "-1001", "12 3", "123456789\n", "١٢٣"]),
    "slack": (["U012AB3CD", "W1"], ["@ada", "u012ab3cd", "C012", "ada", "U 1"]),
    "whatsapp": (["4915112345678", "123456789012345@lid"], ["+4915112345678", "0151123456", "1@g.us", "49 151", "ada"]),
}
GROUPS = {"telegram": "-1001234567890", "slack": "C012AB3CD", "whatsapp": "120363041234567890@g.us"}
SECRETS = {"telegram": {"token": "1:a"}, "slack": {"bot_token": "xoxb-1", "app_token": "xapp-1"}, "whatsapp": {}}


@pytest.mark.parametrize("channel", PEOPLE)
def test_ids_are_checked_by_platform(channel: str) -> None:
    model, (good, bad) = settings_model(channel), PEOPLE[channel]
    for id in (*good, GROUPS[channel], "*"):
        assert parse_channel(channel, {**SECRETS[channel], "allow": [id]}, model)
    for id in good:
        check_owner({channel: id})
    for id in (*bad, GROUPS[channel], "*", ""):
        with pytest.raises(
            ConfigError, match=rf"^owner\.{channel}: must be your own id; a person's (?:id )?is [^\n]+$"
        ):
            check_owner({channel: id})
    for id in set(bad) - {"-1001", "C012", "1@g.us"}:
        with pytest.raises(ConfigError, match=rf"^channels\.{channel}\.allow: entry 2 is not an id; [^\n]+$"):
            parse_channel(channel, {**SECRETS[channel], "allow": ["*", id]}, model)


def test_an_owner_on_a_channel_that_does_not_exist_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^owner\.telegarm: unknown channel; did you mean telegram\?$"):
        check_channels(Config.model_validate({"owner": {"telegarm": "1"}}))


async def test_a_start_with_a_name_in_place_of_an_id_is_refused(process: GatewayProcess) -> None:
    process.configure({"owner": {"telegram": "@ada"}, "channels": {"telegram": {"token": "1:a"}}})
    ended = await process.refused()
    assert ended.code == 1
    assert "supaclaw: owner.telegram: must be your own id; a person's id is a number" in ended.told


def test_doctor_tells_before_the_first_start_too(tmp_path: Path) -> None:
    findings = examine_with(tmp_path)(check_database, '{"channels": {"telegram": {"token": "1:a", "allow": ["5"]}}}')
    assert [each.text for each in findings][1:] == ["nobody on telegram is known to be you"]
