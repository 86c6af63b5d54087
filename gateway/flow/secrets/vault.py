"""The vault: opens and stores secrets with the master key of this machine, and imports key files."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.config.data.files import sync_to_disk
from gateway.config.data.keys import make_keyring, master_key_variable, read_keyring, read_keys, write_keyring
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import PrincipalId
from gateway.logs.errors import logged
from gateway.secrets.encryption import (
    Envelope,
    Keyring,
    MasterKey,
    MasterKeyMissing,
    Tampered,
    rewrap,
    seal,
    sign,
    unseal,
    verify_signed,
)
from gateway.secrets.facts import Binding, Facts, check_name, check_value
from gateway.store.connection.pool import Connection, Database
from gateway.store.trust import secrets
from gateway.store.trust.secrets import SecretRow

_BATCH = 100
NO_KEY = (
    "the master key for the secrets is missing from {}; nothing is lost: restore the file, or enter the "
    "recovery key with `supaclaw secrets recover`"
)
WRONG_KEY = (
    "the stored secrets are encrypted with a different master key than this gateway's, so nothing was stored; enter "
    "the recovery key with `supaclaw secrets recover`, or set SUPACLAW_MASTER_KEY to the right one"
)
GONE = "the Supabase Vault of this database has no value for {0}; set it again: `supaclaw secrets set {0}`"


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored secret; its `value` is never printed, and `problem` says why it is None."""

    row: SecretRow
    value: str | None = field(repr=False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Vault:
    """The secrets of one gateway; each call reads the key again, so that a restored or replaced one applies."""

    database: Database
    data: Path
    environ: Mapping[str, str] = field(repr=False)
    supabase: bool = False
    """Whether new values go to Supabase Vault; stored ones stay where they are."""

    async def opened(self) -> list[Stored]:
        """All secrets, also those that cannot be opened."""
        async with self.database.connection() as conn:
            rows = await secrets.list_all(conn)
            kept = await _kept(conn, rows)
        keys, problem = Keyring(), ""
        try:
            keys = self._keys() if rows else keys
        except OwnerMustAct as error:
            problem = str(error)
        return [kept.get(row.id) or self._open(keys, row, problem) for row in rows]

    async def put(
        self, principal: PrincipalId, name: str, value: str, *, shared: bool, binding: Binding | None = None
    ) -> MasterKey | None:
        """Store a value; it keeps the binding of the previous one. Returns the master key if this call created it."""
        check_name(name)
        value, had_key = check_value(value), bool(self._keys().keys)

        async def work(tx: Connection) -> None:
            await secrets.hold_keys(tx)
            old = await secrets.get(tx, principal, name, shared=shared)
            bound = binding or (old.facts.binding if old else Binding())
            facts = Facts(principal, shared, name, old.facts.version + 1 if old else 1, bound)
            await self._store(tx, facts, value, old)

        await self.database.run(work)
        return None if had_key or self.supabase else self._keys().keys[0]

    async def bind(self, principal: PrincipalId, name: str, binding: Binding, *, shared: bool) -> bool:
        """Set where a secret may be sent; False if there is none. Raises `OwnerMustAct` if it cannot be opened."""

        async def work(tx: Connection) -> bool:
            await secrets.hold_keys(tx)
            row = await secrets.get(tx, principal, name, shared=shared)
            if row is None:
                return False
            facts = replace(row.facts, version=row.facts.version + 1, binding=binding)
            stored = (await _kept(tx, [row])).get(row.id) or self._open(self._keys(), row, "")
            value = required(stored.value, OwnerMustAct(stored.problem))
            await self._store(tx, facts, value, row, changed=False)
            return True

        return await self.database.run(work)

    async def recover(self, text: str) -> MasterKey:
        """Use this key for the stored secrets; raises `OwnerMustAct` if it opens none."""
        key = MasterKey.parse(text)
        if variable := master_key_variable(self.environ):
            raise OwnerMustAct(f"{variable} sets the master key; put the recovery key there")
        known = await self.database.read(secrets.key_ids)
        if known and key.id not in known:
            raise OwnerMustAct("this key decrypts none of the stored secrets; is it this gateway's recovery key?")
        write_keyring(self.data, Keyring((key,)))
        await self.confirm(key)
        return key

    async def remove(self, principal: PrincipalId, name: str, *, shared: bool) -> bool:
        """Remove a secret; False if there was none."""

        async def work(tx: Connection) -> bool:
            row = await secrets.get(tx, principal, name, shared=shared)
            if row and (kept := row.envelope.kept_as):
                await secrets.remove_from_vault(tx, kept)
            return await secrets.remove(tx, principal, name, shared=shared)

        return await self.database.run(work)

    async def holds(self, principal: PrincipalId, name: str, *, shared: bool) -> bool:
        """Whether there is such a secret."""
        return await self.database.read(lambda conn: secrets.get(conn, principal, name, shared=shared)) is not None

    async def confirmed(self, key: MasterKey) -> bool:
        """Whether the owner confirmed a copy of this key elsewhere."""
        return await self.database.read(lambda conn: secrets.key_confirmed(conn, key.id))

    async def confirm(self, key: MasterKey) -> None:
        """Record that the owner keeps a copy of this key elsewhere."""
        await self.database.run(lambda tx: secrets.confirm_key(tx, key.id))

    async def rotate_master(self) -> MasterKey:
        """Encrypt everything with a new master key, which is returned; after a kill, the next call continues.

        Both keys are valid until no row needs the old one. If a variable sets the keys, its first one is the new one.
        """
        keys, given = self._keys(), master_key_variable(self.environ)
        if not keys.keys:
            raise OwnerMustAct("there is no master key yet; the first secret makes one")
        if len(keys.keys) == 1:
            if given:
                raise OwnerMustAct(f"{given} sets the master key; put a new one before it there, then run this again")
            keys = Keyring((MasterKey.fresh(), *keys.keys))
            write_keyring(self.data, keys)
        while await self.database.run(lambda tx: _rewrap_some(tx, keys)):
            pass
        if not given:
            await self.database.run(lambda tx: self._retire(tx, keys))
        return keys.keys[0]

    async def _store(
        self, tx: Connection, facts: Facts, value: str, old: SecretRow | None, *, changed: bool = True
    ) -> None:
        """Store a value in the place for new values, and remove it from the other."""
        if self.supabase:
            name = f"supaclaw {'shared' if facts.shared else facts.principal} {facts.name}"
            envelope = Envelope.elsewhere(await secrets.put_in_vault(tx, name, sign(facts, value)))
        else:
            if old and (kept := old.envelope.kept_as):
                await secrets.remove_from_vault(tx, kept)
            envelope = seal(await self._sealing(tx), facts, value)
        await secrets.put(tx, facts, envelope, changed=changed)

    async def _retire(self, tx: Connection, keys: Keyring) -> None:
        """Drop the old key, once no transaction that read it is open."""
        await secrets.hold_keys(tx, alone=True)
        while await _rewrap_some(tx, keys):
            pass
        write_keyring(self.data, Keyring(keys.keys[:1]))

    def _keys(self) -> Keyring:
        return read_keyring(self.data, self.environ)

    async def _sealing(self, tx: Connection) -> Keyring:
        """The keys; the first secret creates one, unless the stored secrets need another."""
        keys, known = self._keys(), await secrets.key_ids(tx)
        if not keys.keys and known:
            raise OwnerMustAct(NO_KEY.format(self.data / "keys"))
        if keys.keys and known and not any(map(keys.named, known)):
            raise OwnerMustAct(WRONG_KEY)
        return keys if keys.keys else make_keyring(self.data)

    def _open(self, keys: Keyring, row: SecretRow, problem: str) -> Stored:
        if not keys.keys:
            return Stored(row, None, problem or NO_KEY.format(self.data / "keys"))
        try:
            return Stored(row, unseal(keys, row.facts, row.envelope))
        except OwnerMustAct as error:
            return Stored(row, None, str(error))


async def _kept(conn: Connection, rows: Sequence[SecretRow]) -> dict[int, Stored]:
    """The rows with values in Supabase Vault."""
    ids = {kept: row for row in rows if (kept := row.envelope.kept_as)}
    try:
        found, problem = await secrets.texts_in_vault(conn, list(ids)) if ids else {}, ""
    except OwnerMustAct as error:
        found, problem = {}, str(error)
    return {row.id: _checked(row, found.get(id), problem) for id, row in ids.items()}


def _checked(row: SecretRow, text: str | None, problem: str) -> Stored:
    if text is None:
        return Stored(row, None, problem or GONE.format(row.facts.name))
    try:
        return Stored(row, verify_signed(row.facts, text))
    except (OwnerMustAct, ValueError, TypeError) as error:
        return Stored(row, None, str(error) if isinstance(error, OwnerMustAct) else str(Tampered(row.facts.name)))


async def _rewrap_some(tx: Connection, keys: Keyring) -> int:
    rows: Sequence[SecretRow] = await secrets.list_under_other_keys(tx, keys.keys[0].id, _BATCH)
    for row in rows:
        if keys.named(row.envelope.key_id) is None:
            raise MasterKeyMissing(row.facts.name)
        await secrets.rewrap(tx, row, rewrap(keys, row.facts, row.envelope))
    return len(rows)


log = structlog.get_logger(__name__)


async def import_key_files(vault: Vault, owner: PrincipalId) -> None:
    """Import `keys/*.env`; a value of a file is newer than the stored one only if the file is.

    After a kill the next start imports the file again. A file that cannot be imported stays.
    """
    for file in sorted((vault.data / "keys").glob("*.env")):
        with logged(log, "secrets.key_file_kept", OwnerMustAct, file=str(file)):
            await _import_file(vault, owner, file)


async def _import_file(vault: Vault, owner: PrincipalId, file: Path) -> None:
    keys, written = await asyncio.to_thread(_read_key_file, vault.data, file)
    stored = {each.row.facts.name: each for each in await vault.opened() if each.row.facts.shared}
    for name, value in keys.items():
        known = stored.get(check_name(name))
        if known is None or (known.value not in (None, value) and known.row.changed_at < written):
            await vault.put(owner, name, value, shared=True)
        elif known.value is None:
            raise OwnerMustAct(known.problem)
    await asyncio.to_thread(_remove_key_file, vault.data, file, keys)
    log.info("secrets.imported", file=file.name, names=sorted(keys))


def _read_key_file(data: Path, file: Path) -> tuple[dict[str, str], datetime]:
    return read_keys(data, file.name), datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _remove_key_file(data: Path, file: Path, keys: dict[str, str]) -> None:
    """Remove the file, unless it was saved again meanwhile."""
    if read_keys(data, file.name) == keys:
        with suppress(FileNotFoundError):
            file.unlink()
        sync_to_disk(file.parent)
