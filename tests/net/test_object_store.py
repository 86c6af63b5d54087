"""The real SDK against moto's S3 over a socket, and against a store that ignores conditions."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.config.model import WorkspaceStore
from gateway.domain.errors import OwnerMustAct
from gateway.net.addresses import Rules
from gateway.net.object_store import BadObject, ObjectStore, StoreAddress, StoreDown
from tests.fakes.s3 import Careless, settings
from tests.fakes.s3_fixtures import bucket, careless, endpoint, s3

__all__ = ["bucket", "careless", "endpoint", "s3"]

Make = Callable[..., ObjectStore]
HELLO = hashlib.sha256(b"hello").hexdigest()


@pytest.fixture
def store() -> Iterator[Make]:
    """Opens stores, and closes them."""
    with ExitStack() as opened:

        def make(endpoint: str, bucket: str, rules: Rules | None = None) -> ObjectStore:
            address, allowed = StoreAddress.of(settings(endpoint, bucket)), rules or Rules.of(["127.0.0.1"])
            made = ObjectStore(address, lambda: allowed)
            opened.callback(made.close)
            return made

        yield make


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"hello")
    return tmp_path / "file"


async def test_what_is_stored_comes_back_and_goes(
    store: Make, endpoint: str, bucket: str, file: Path, tmp_path: Path
) -> None:
    objects = store(endpoint, bucket)
    await objects.put(HELLO, file)
    await objects.put(HELLO, file)
    await objects.fetch(HELLO, 5, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"hello"

    later = datetime.now(UTC) + timedelta(hours=1)
    assert [names async for names in objects.names(later)] == [[HELLO]]
    assert [name async for names in objects.names(later - timedelta(hours=2)) for name in names] == []
    await objects.delete(HELLO)
    await objects.delete(HELLO)
    with pytest.raises(BadObject, match="has no object"):
        await objects.fetch(HELLO, 5, tmp_path / "back")


async def test_a_large_file_goes_in_parts(store: Make, endpoint: str, bucket: str, tmp_path: Path) -> None:
    data = os.urandom(12 * 1024**2)
    name = hashlib.sha256(data).hexdigest()
    (tmp_path / "large").write_bytes(data)
    await store(endpoint, bucket).put(name, tmp_path / "large")
    await store(endpoint, bucket).fetch(name, len(data), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize("planted", [b"evil!", b"hell", b"hello, and then some"])
async def test_what_somebody_put_into_the_bucket_is_refused(
    store: Make, careless: Careless, bucket: str, file: Path, tmp_path: Path, planted: bytes
) -> None:
    objects = store(careless.endpoint, bucket)
    await objects.put(HELLO, file)
    careless.answers[HELLO] = planted
    with pytest.raises(BadObject, match="isn't what its name says"):
        await objects.fetch(HELLO, 5, tmp_path / "back")


async def test_a_bucket_that_is_not_there_and_a_store_that_is_down(store: Make, careless: Careless, file: Path) -> None:
    with pytest.raises(StoreDown, match=r"there is no such bucket; check workspace\.url"):
        await store(careless.endpoint, "nowhere").put(HELLO, file)
    careless.down = True
    with pytest.raises(StoreDown, match=r"answers with an error \(503\)"):
        await store(careless.endpoint, "nowhere").fetch(HELLO, 5, file)
    with pytest.raises(StoreDown, match="can't be reached"):
        await store("http://127.0.0.1:1025", "nowhere").put(HELLO, file)


async def test_a_private_address_needs_the_owners_word(store: Make, s3: str, bucket: str, file: Path) -> None:
    unlisted = store(s3, bucket, Rules())
    with pytest.raises(StoreDown, match=r"net\.private_allow"):
        await unlisted.put(HELLO, file)
    with pytest.raises(StoreDown, match="always blocked"):
        await store("http://169.254.169.254", bucket).put(HELLO, file)
    with pytest.raises(StoreDown, match="must be https"):
        await store("http://93.184.215.14", bucket).put(HELLO, file)


async def test_the_environment_changes_nothing(
    store: Make, s3: str, bucket: str, file: Path, monkeypatch: pytest.MonkeyPatch, careless: Careless
) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, careless.endpoint)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_BUCKET", "elsewhere")
    await store(s3, bucket).put(HELLO, file)
    assert careless.asked == []


async def test_a_redirect_leads_nowhere(store: Make, careless: Careless, s3: str, bucket: str, file: Path) -> None:
    objects = store(careless.endpoint, bucket)
    await objects.put(HELLO, file)
    async with Careless(s3) as inside:
        careless.redirect = f"{inside.endpoint}/{bucket}/home/files/objects/{HELLO}"
        with pytest.raises(StoreDown):
            await objects.fetch(HELLO, 5, file)
        assert inside.asked == []


@pytest.mark.parametrize("lacking", ["access_key", "secret_key", "url"])
def test_all_keys_are_needed(lacking: str) -> None:
    known = {"url": "s3://files", "access_key": "a", "secret_key": "b"}
    with pytest.raises(OwnerMustAct, match="set all three"):
        StoreAddress.of(WorkspaceStore.model_validate({**known, lacking: None}))


def test_the_secret_is_in_no_text() -> None:
    assert "geheim" not in repr(StoreAddress("b", "p", "https://s3", "eu", "key", "geheim"))
