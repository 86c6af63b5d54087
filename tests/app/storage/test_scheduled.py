"""Backups that the gateway makes by itself, and fetching one from the bucket where they lie encrypted."""

import asyncio
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.app.storage.backup import recorded_backups
from gateway.app.storage.manifest import Manifest
from gateway.app.storage.restore import unpack
from gateway.app.storage.scheduled import ScheduledBackup, fetched
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.secrets.encryption import Keyring, MasterKey
from gateway.store.connection.pool import Database
from tests.app.storage.conftest import House
from tests.fakes.s3 import Careless, store
from tests.fakes.s3_fixtures import bucket, careless, s3
from tests.store.world import World

__all__ = ["bucket", "careless", "s3"]

DAY = timedelta(days=1)


@dataclass
class Later(SystemClock):
    """The real time, moved on by a test."""

    by: timedelta = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by


@dataclass
class Schedule:
    """The job of a house, day by day; `told` is what the owner heard."""

    house: House
    database: Database
    clock: Later = field(default_factory=Later)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.job = ScheduledBackup(self.house.environment, self.config, self.database, self.tell, self.clock)

    def config(self) -> Config:
        return load(self.house.environment.config, {})

    async def tell(self, text: str) -> None:
        self.told.append(text)

    async def on_day(self, day: int) -> None:
        """Make the backup of a day, and see that it is not made twice."""
        self.clock.by = timedelta(days=day, seconds=day)
        for _ in range(2):
            due = await self.job.look()
            assert due is not None
            assert abs(due - self.clock.now() - DAY) < timedelta(minutes=1)


@pytest.fixture
def schedule(house: House, database: Database, world: World) -> Schedule:
    return Schedule(house, database)


def configure(house: House, **backup: object) -> None:
    house.configure(
        database={"url": house.dsn}, backup={"every": "1d", "keep": 2, **backup}, net={"private_allow": ["127.0.0.1"]}
    )


async def test_one_is_made_when_the_newest_is_too_old_and_the_oldest_goes(schedule: Schedule, tmp_path: Path) -> None:
    (folder := tmp_path / "elsewhere").mkdir()
    (mine := folder / "supaclaw-2020-01-01.tar.gz").touch()
    configure(schedule.house, to=str(folder))
    for day in range(4):
        await schedule.on_day(day)
        made = sorted({*folder.iterdir()} - {mine})
        assert len(made) == min(day + 1, 2)
    assert unpack(made[-1], None).has_secrets is False
    assert mine.exists()

    schedule.clock.by = 9 * DAY
    folder.rename(tmp_path / "unmounted")
    for _ in range(2):
        with pytest.raises(OwnerMustAct, match="cannot be written"):
            await schedule.job.look()
    assert [text.partition(":")[0] for text in schedule.told] == ["The scheduled backup failed"]
    schedule.house.configure(database={"url": schedule.house.dsn})
    assert await schedule.job.look() is None


@pytest.fixture
def key(house: House) -> MasterKey:
    key = MasterKey.fresh()
    house.put("keys/master-key", key.text)
    return key


async def fetch(house: House, source: str, keys: Keyring | None = None) -> Manifest:
    def whole() -> Manifest:
        with fetched(house.environment, source, keys) as path:
            return unpack(path, None)

    return await asyncio.to_thread(whole)


async def objects(endpoint: str, bucket: str, scratch: Path) -> dict[str, bytes]:
    """The objects in the bucket, by name."""
    with closing(store(endpoint, bucket, "backups/ada")) as backups:
        names = [name async for batch in backups.names(datetime.max.replace(tzinfo=UTC)) for name in batch]
        for name in names:
            await backups.download(name, 10**9, scratch / name)
    return {name: (scratch / name).read_bytes() for name in names}


async def test_in_a_bucket_they_are_encrypted_and_the_newest_can_be_fetched(
    schedule: Schedule, careless: Careless, bucket: str, key: MasterKey, other: House, tmp_path: Path
) -> None:
    to, house = f"s3://{bucket}/backups/ada", schedule.house
    configure(house, to=to, endpoint=careless.endpoint, access_key="key", secret_key="secret")
    for day in range(3):
        await schedule.on_day(day)

    kept = await objects(careless.endpoint, bucket, tmp_path)
    assert [len(content) > 1000 for content in kept.values()] == [True, True]
    assert not any(b"manifest" in content or content.startswith(b"\x1f\x8b") for content in kept.values())
    assert not (house.environment.data / "backup.unsent").exists()
    newest = max(kept)
    assert recorded_backups(house.environment.data)[-1].endswith(f"/{bucket}/backups/ada/{newest}")

    saved = await fetch(house, to)
    assert [member.name for member in saved.members if "AGENTS" in member.name] == ["workspace/AGENTS.md"]
    assert (await fetch(house, f"{to}/{min(kept)}")).created < saved.created
    with pytest.raises(OwnerMustAct, match=rf"there is no backup {to}/nothing; there are: supaclaw-"):
        await fetch(house, f"{to}/nothing")
    with pytest.raises(OwnerMustAct, match=r"is not in backup\.to of"):
        await fetch(house, f"s3://{bucket}/elsewhere")

    local = other.home / "mine.tar.gz.sealed"
    local.write_bytes(kept[newest])
    with pytest.raises(OwnerMustAct, match="encrypted with another master key"):
        await fetch(other, str(local))
    assert await fetch(other, str(local), Keyring((key,))) == saved

    careless.answers[newest] = kept[newest][:-20]
    with pytest.raises(OwnerMustAct, match="changed or cut off after it was encrypted"):
        await fetch(house, to)
    careless.down = True
    with pytest.raises(SupaclawError, match=r"answers with an error \(503\)"):
        await fetch(house, to)


async def test_a_bucket_without_a_key_or_with_keys_that_it_refuses_is_told_once(
    schedule: Schedule, s3: str, bucket: str, tmp_path: Path
) -> None:
    place = {"to": f"s3://{bucket}/backups/ada", "endpoint": s3}
    configure(schedule.house, **place)
    with pytest.raises(
        OwnerMustAct, match=r"backup\.to, backup\.access_key and backup\.secret_key are needed; set all three"
    ):
        await schedule.job.look()
    configure(schedule.house, **place, access_key="key", secret_key="secret")
    with pytest.raises(OwnerMustAct, match="encrypted with the master key, and there is none yet: store a secret"):
        await schedule.job.look()
    assert len(schedule.told) == 1
    assert await objects(s3, bucket, tmp_path) == {}
