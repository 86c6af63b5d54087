"""An object store that speaks S3, Supabase's included: objects by name below one prefix.

The operator configures it. The SDK would follow any redirect, so it connects through a proxy that leads to that host
alone and checks its addresses. Conditional writes aren't needed. Imports obstore at the first use, in a thread.
"""

import asyncio
import hashlib
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.model import BackupSettings, WorkspaceStore
from gateway.domain.errors import OwnerMustAct, TryAgainLater, raising
from gateway.net.addresses import Reach, Rules, Target, checked_addresses, parse_ip, parse_url, reach
from gateway.net.errors import NetError
from gateway.net.proxy import Destination, Proxy

if TYPE_CHECKING:
    from obstore.store import S3Store

OBJECTS = "objects"
_CHUNK = 1024 * 1024
_CONNECT, _READ, _WHOLE = timedelta(seconds=5), timedelta(seconds=30), timedelta(minutes=10)
_RETRIES = 2
_LISTED = 1_000


class StoreDown(TryAgainLater):
    """The object store can't be used at the moment; the text says why, in one line."""


class _MissingObject(StoreDown):
    """The object doesn't exist."""


class BadObject(TryAgainLater):
    """An object is missing or has another hash: it was damaged, or somebody else wrote into the bucket."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The bucket of a store, and its credentials."""

    bucket: str
    prefix: str
    endpoint: str
    region: str
    key: str
    secret: str = field(repr=False)
    section: str = "workspace"
    """Of config.json."""

    @classmethod
    def of(cls, settings: WorkspaceStore | BackupSettings) -> "StoreAddress":
        """The configured store; raises `OwnerMustAct` if the configuration is incomplete."""
        section, url = ("backup", settings.to) if isinstance(settings, BackupSettings) else ("workspace", settings.url)
        if url is None or settings.access_key is None or settings.secret_key is None:
            keys = f"{section}.access_key and {section}.secret_key"
            raise OwnerMustAct(f"{_address_key(section)}, {keys} are needed; set all three")
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        endpoint = settings.endpoint or f"https://s3.{settings.region}.amazonaws.com"
        key, secret = settings.access_key.get_secret_value(), settings.secret_key.get_secret_value()
        return cls(bucket, prefix, endpoint.rstrip("/"), settings.region, key, secret, section)

    @property
    def place(self) -> str:
        """The key of its index: another bucket has another index."""
        return f"{self.endpoint}/{self.bucket}/{self.prefix}".rstrip("/")


def _address_key(section: str) -> str:
    return "backup.to" if section == "backup" else f"{section}.url"


@dataclass(slots=True)
class ObjectStore:
    """Methods raise `StoreDown`. `rules` limit the addresses in private networks; close the store after use."""

    address: StoreAddress
    rules: Callable[[], Rules]
    _client: "S3Store | None" = None
    _proxy: Proxy | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def close(self) -> None:
        """Close all connections."""
        if self._proxy:
            self._proxy.close()
        self._client = self._proxy = None

    async def put(self, name: str, file: Path) -> None:
        """Store a file, replacing an object of this name."""
        client = await self._checked()
        with _explained(self.address):
            await client.put_async(self._path(name), file)

    async def fetch(self, sha256: str, size: int, to: Path) -> None:
        """Write an object to a file; reads at most `size` bytes, and raises `BadObject` if size or hash differ."""
        if await self.download(sha256, size, to) != (size, sha256):
            raise BadObject(f"the object {sha256[:12]}… isn't what its name says; somebody may have changed the bucket")

    async def download(self, name: str, most: int, to: Path) -> tuple[int, str]:
        """Write at most `most` bytes of an object to a file, whatever they are; returns their number and SHA-256.

        The number is larger if the object is. Raises `BadObject` if there is none.
        """
        client = await self._checked()
        digest, length = hashlib.sha256(), 0
        missing = BadObject(f"the store has no object {name[:64]}")
        with raising(missing, _MissingObject), _explained(self.address), to.open("wb") as file:
            found = await client.get_async(self._path(name))
            async for piece in found.stream(min_chunk_size=_CHUNK):
                length += len(piece)
                if length > most:
                    break
                digest.update(piece)
                await asyncio.to_thread(file.write, piece)
        return length, digest.hexdigest()

    async def names(self, before: datetime) -> AsyncIterator[list[str]]:
        """Yield batches of names of objects that were stored before then."""
        client = await self._checked()
        with _explained(self.address):
            async for batch in client.list_async(self._path(""), chunk_size=_LISTED):
                yield [each["path"].rpartition("/")[2] for each in batch if each["last_modified"] < before]

    async def delete(self, name: str) -> None:
        """Delete an object if it exists."""
        client = await self._checked()
        with suppress(_MissingObject), _explained(self.address):
            await client.delete_async(self._path(name))

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.address.prefix, OBJECTS, name) if part)

    async def _checked(self) -> "S3Store":
        try:
            await _check(target := parse_url(self.address.endpoint), self.rules())
        except NetError as error:
            raise StoreDown(f"{self.address.place}: {error}") from None
        async with self._opening:
            if self._client is None:
                listener = socket.socket()
                listener.bind(("127.0.0.1", 0))
                here = f"127.0.0.1:{listener.getsockname()[1]}"
                self._proxy = Proxy([Destination(target.host, (target.port,))], self.rules, here)
                await self._proxy.serve(listener)
                self._client = await asyncio.to_thread(_connected, self.address, self._proxy.url)
            return self._client


async def _check(target: Target, rules: Rules) -> None:
    rules.admit(target)
    addresses = [parse_ip(each) for each in await checked_addresses(target.host, target.port, rules)]
    if target.scheme == "http" and any(each and reach(each) is Reach.PUBLIC for each in addresses):
        raise NetError("not_allowed", "Not connected: outside of a private network it must be https.")


def _connected(address: StoreAddress, proxy: str) -> "S3Store":
    """The SDK's client, which takes neither keys nor endpoints from the environment or from services of the machine."""
    store = import_module("obstore.store")
    credential = {"access_key_id": address.key, "secret_access_key": address.secret, "token": None, "expires_at": None}
    client: S3Store = store.S3Store(
        address.bucket,
        config={
            "endpoint": address.endpoint,
            "aws_endpoint_url_s3": address.endpoint,
            "region": address.region,
            "virtual_hosted_style_request": False,
            "disable_bulk_delete": True,
            "skip_signature": False,
        },
        client_options={
            "allow_http": address.endpoint.startswith("http:"),
            "connect_timeout": _CONNECT,
            "read_timeout": _READ,
            "timeout": _WHOLE,
            "proxy_url": proxy,
        },
        retry_config={"max_retries": _RETRIES, "retry_timeout": _READ},
        credential_provider=lambda: credential,
    )
    return client


@contextmanager
def _explained(address: StoreAddress) -> Iterator[None]:
    errors = import_module("obstore.exceptions")
    try:
        yield
    except (errors.PermissionDeniedError, errors.UnauthenticatedError):
        keys = f"check {address.section}.access_key, {address.section}.secret_key and what they may do there"
        raise StoreDown(f"{address.place}: it refuses the keys; {keys}") from None
    except (errors.BaseError, FileNotFoundError) as error:
        kind = StoreDown if isinstance(error, errors.BaseError) or "NoSuchBucket" in str(error) else _MissingObject
        raise kind(f"{address.place}: {_reason(str(error), address.section)}") from None


def _reason(text: str, section: str) -> str:
    """An error of the SDK in a few words: its own text is pages long and may quote the request."""
    if found := re.search(r"status code: (5\d\d)", text):
        return "it can't be reached" if found[1] == "502" else f"it answers with an error ({found[1]})"
    if "NoSuchBucket" in text:
        return f"there is no such bucket; check {_address_key(section)}"
    if "SignatureDoesNotMatch" in text:
        return f"it refuses the keys; check {section}.secret_key and {section}.region"
    if "error trying to connect" in text or "Connect" in text or "dns" in text:
        return "it can't be reached"
    if "timed out" in text.lower() or "TimedOut" in text:
        return "it took too long"
    return f"it doesn't respond like an S3 store; check {section}.endpoint"
