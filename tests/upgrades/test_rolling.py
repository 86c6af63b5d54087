"""Machines that are upgraded one by one: this program and the next one at work on one database, under traffic."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.store.migrate import MIGRATIONS, known_schema
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, ROOT, GatewayProcess, configured

pytestmark = pytest.mark.thorough

PEOPLE = range(100, 130)
NEXT = known_schema() + 1
EXPAND = """
do $$ declare t text; begin
  for t in select tablename from pg_tables where schemaname = 'supaclaw' loop
    execute format('alter table supaclaw.%I add column added_label smallint not null default 2', t);
  end loop;
end $$;
create table added (
  principal_id uuid not null references principals on delete cascade,
  label smallint not null
);
alter table added enable row level security;
"""
"""Changes that a next release may make: a column in each table, a label that older programs leave out, a new table."""


def the_next_program(folder: Path) -> str:
    """A copy of this program with one more migration, which also brings a new version of the function that claims."""
    (package := folder / "gateway").mkdir(parents=True)
    for place, below in ((ROOT, "channels"), (ROOT, "workspace_template")):
        (folder / below).symlink_to(place / below)
    store, migrations = package / "store", package / "store" / "migrations"
    for source, target in ((ROOT / "gateway", package), (MIGRATIONS.parent, store), (MIGRATIONS, migrations)):
        target.mkdir(exist_ok=True)
        for entry in source.iterdir():
            if entry not in {MIGRATIONS.parent, MIGRATIONS} and entry.name != "__pycache__":
                (target / entry.name).symlink_to(entry)
    [*_, claims] = [
        text for path in sorted(MIGRATIONS.iterdir()) if "function claim_open(" in (text := path.read_text())
    ]
    function = claims[claims.index("create or replace function claim_open(") :]
    counted = function.replace("begin\n", "begin\n  insert into meta values ('next', '1') on conflict do nothing;\n", 1)
    (migrations / f"{NEXT:04}_next.sql").write_text(EXPAND + counted)
    return str(folder)


@dataclass
class Fleet:
    """Machines with a data folder each, on one database and behind the same messenger."""

    folder: Path
    dsn: str
    telegram: FakeTelegram
    models: FakeModels
    made: list[GatewayProcess]

    def machine(self, name: str, program: str = "") -> GatewayProcess:
        environ = {"PYTHONPATH": program} if program else {}
        process = GatewayProcess(self.folder / name, self.dsn, environ, fresh=bool(program))
        process.home.mkdir()
        config = configured(self.telegram, self.models)
        config["channels"]["telegram"]["allow"] += [str(person) for person in PEOPLE]
        process.configure(config)
        self.made.append(process)
        return process

    async def talk(self, people: range) -> None:
        for person in people:
            self.telegram.say(f"hello mk{person}x", person)
            await asyncio.sleep(0.05)

    async def answered(self, people: range) -> Counter[str]:
        """How often each answer arrived, once there is one for all of these."""
        await self.telegram.wait_for(lambda _: all(f"fin{person}x" in self.answers() for person in people))
        return self.answers()

    def answers(self) -> Counter[str]:
        return Counter(word for sent in self.telegram.sent for word in sent.text.split() if word.startswith("fin"))


@pytest.fixture
async def fleet(tmp_path: Path, empty_dsn: str) -> AsyncIterator[Fleet]:
    async with FakeTelegram() as telegram, FakeModels() as models:
        fleet = Fleet(tmp_path, empty_dsn, telegram, models, [])
        yield fleet
        for process in fleet.made:
            await process.close()


async def holds_telegram(process: GatewayProcess) -> bool:
    sql = "select holder::text from leases where name = 'channel telegram' and expires_at > now()"
    return [row["holder"] for row in await process.rows(sql)] == [(process.data / "instance").read_text().strip()]


async def test_machines_are_upgraded_one_by_one_and_nothing_is_lost_or_answered_twice(fleet: Fleet) -> None:
    program = the_next_program(fleet.folder / "next")
    first, second, beside = fleet.machine("first"), fleet.machine("second", program), fleet.machine("third")
    await first.start()
    talking = asyncio.create_task(fleet.talk(PEOPLE[:10]))
    await second.start()
    await talking
    await fleet.answered(PEOPLE[:10])
    [ledger] = await first.rows("select max(number) as newest, max(compatible_from) as oldest from migrations")
    assert (ledger["newest"], ledger["oldest"] < NEXT) == (NEXT, True)
    assert list(second.data.glob("backups/upgrade-*"))

    assert await holds_telegram(first), "the older program goes on beside the newer one"
    await fleet.talk(PEOPLE[10:20])
    await fleet.answered(PEOPLE[10:20])
    assert await first.rows("select from meta where key = 'next'"), "it claims by the newer function"
    await beside.start()

    talking = asyncio.create_task(fleet.talk(PEOPLE[20:]))
    await fleet.telegram.wait_for(lambda tg: len(tg.sent) > 22)
    await first.terminate()
    await talking
    answers = await fleet.answered(PEOPLE)

    assert set(answers.values()) == {1}
    assert len(answers) == len(PEOPLE)
    [open_] = await beside.rows("select count(*) from messages where kind = 'user' and answered_by is null")
    assert open_["count"] == 0
    written = await beside.rows("select distinct added_label from messages")
    assert [row["added_label"] for row in written] == [2], "what an older program wrote has the strictest label"
    assert "Traceback" not in "\n".join([*first.told, *second.told, *beside.told])


async def test_a_program_that_is_too_old_for_the_next_schema_is_refused_and_says_what_to_do(fleet: Fleet) -> None:
    first = fleet.machine("first")
    await first.start()
    await first.rows(f"insert into migrations (number, name, sha256, compatible_from) values ({NEXT}, 'x', '', {NEXT})")
    fleet.telegram.say("hello mk1x", OWNER)
    told = await first.hears("A newer SupaClaw wrote this database")
    assert f"for programs that know {NEXT}" in told
    refused = await fleet.machine("second").refused()

    assert (refused.code, "update SupaClaw" in refused.told, "Traceback" in refused.told) == (1, True, False)
    assert not fleet.answers()
