import asyncio
import os
from pathlib import Path

import pytest

from gateway.config.data.keys import read_keyring, save_keys, write_keyring
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Role
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault, import_key_files
from gateway.secrets.encryption import Keyring, MasterKey
from gateway.secrets.facts import Binding
from gateway.store.connection.pool import Database
from gateway.store.people import principals

BOUND = Binding.of(["api.example.org"], ["weather"], "header:Authorization")


@pytest.fixture
async def owner(database: Database) -> PrincipalId:
    async with database.transaction() as tx:
        return await principals.add(tx, Role.OWNER, "Ada", ["fake:1"])


@pytest.fixture
async def member(database: Database) -> PrincipalId:
    async with database.transaction() as tx:
        return await principals.add(tx, Role.MEMBER, "Bob", ["fake:2"])


@pytest.fixture
def vault(database: Database, tmp_path: Path) -> Vault:
    return Vault(database, tmp_path, {})


async def values(vault: Vault) -> dict[tuple[str, bool], str | None]:
    return {(each.row.facts.name, each.row.facts.shared): each.value for each in await vault.opened()}


async def test_the_first_secret_makes_the_master_key_and_no_other_does(
    vault: Vault, owner: PrincipalId, tmp_path: Path
) -> None:
    made = await vault.put(owner, "A", "value-of-a\n", shared=True)
    file = tmp_path / "keys" / "master-key"

    assert made is not None
    assert made.text in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert await vault.put(owner, "B", "value-of-b", shared=False, binding=BOUND) is None
    assert await values(vault) == {("A", True): "value-of-a", ("B", False): "value-of-b"}


async def test_nothing_of_a_value_or_the_key_is_in_the_database(vault: Vault, owner: PrincipalId) -> None:
    made = await vault.put(owner, "A", "value-of-a", shared=True)
    async with vault.database.connection() as conn:
        row = str(dict((await conn.fetchrow("select * from secrets")) or {}))
    assert "value-of-a" not in row
    assert made is not None
    assert made.raw.hex() not in row


async def test_a_new_value_keeps_what_the_secret_is_bound_to(vault: Vault, owner: PrincipalId) -> None:
    await vault.put(owner, "A", "value-of-a", shared=True, binding=BOUND)
    await vault.put(owner, "A", "another-value", shared=True)
    [stored] = await vault.opened()
    assert (stored.value, stored.row.facts.version, stored.row.facts.binding) == ("another-value", 2, BOUND)

    assert await vault.bind(owner, "A", Binding(), shared=True)
    [stored] = await vault.opened()
    assert (stored.value, stored.row.facts.binding) == ("another-value", Binding())
    assert not await vault.bind(owner, "NONE", Binding(), shared=True)


@pytest.mark.parametrize(
    "tampering",
    [
        "update secrets set name = case name when 'A' then 'B' else 'A' end where false or name = 'A'",
        "update secrets set version = version + 1 where name = 'A'",
        "update secrets set principal_id = (select id from principals where role = 'member') where name = 'A'",
        "update secrets set shared = not shared where name = 'A'",
        "update secrets set hosts = '{https://evil.example:443}' where name = 'A'",
        "update secrets set tools = '{web_fetch}' where name = 'A'",
        "update secrets set place = 'header:X' where name = 'A'",
        "update secrets a set sealed = b.sealed from secrets b where a.name = 'A' and b.name = 'C'",
    ],
)
async def test_a_tampered_row_is_refused_and_hides_no_other(
    vault: Vault, owner: PrincipalId, member: PrincipalId, tampering: str
) -> None:
    await vault.put(owner, "A", "value-of-a", shared=True, binding=BOUND)
    await vault.put(owner, "C", "value-of-c", shared=True)
    async with vault.database.transaction() as tx:
        await tx.execute(tampering)

    opened = {each.row.facts.name: each for each in await vault.opened()}
    changed = opened.pop("A", None) or opened.pop("B")
    assert changed.value is None
    assert "was changed outside this program" in changed.problem
    assert opened["C"].value == "value-of-c"


async def test_a_missing_master_key_loses_nothing_and_makes_no_new_one(
    vault: Vault, owner: PrincipalId, tmp_path: Path
) -> None:
    made = await vault.put(owner, "A", "value-of-a", shared=True)
    assert made is not None
    (tmp_path / "keys" / "master-key").unlink()

    [lost] = await vault.opened()
    assert lost.value is None
    assert "nothing is lost" in lost.problem
    with pytest.raises(OwnerMustAct, match="is missing from"):
        await vault.put(owner, "B", "value-of-b", shared=True)
    with pytest.raises(OwnerMustAct, match="decrypts none of the stored secrets"):
        await vault.recover(MasterKey.fresh().text)
    assert not (tmp_path / "keys" / "master-key").exists()

    await vault.recover(made.text.lower())
    assert await values(vault) == {("A", True): "value-of-a"}
    assert await vault.confirmed(made)


async def test_a_wrong_master_key_is_told_and_seals_nothing(vault: Vault, owner: PrincipalId, tmp_path: Path) -> None:
    await vault.put(owner, "A", "value-of-a", shared=True)
    other = Vault(vault.database, tmp_path, {"SUPACLAW_MASTER_KEY": MasterKey.fresh().text})

    [lost] = await other.opened()
    assert "different master key" in lost.problem
    with pytest.raises(OwnerMustAct, match="different master key"):
        await other.put(owner, "A", "value-of-b", shared=True)
    with pytest.raises(OwnerMustAct, match="isn't a master key"):
        await Vault(vault.database, tmp_path, {"SUPACLAW_MASTER_KEY": "oops"}).put(owner, "A", "value-x", shared=True)
    assert await values(vault) == {("A", True): "value-of-a"}


@pytest.mark.parametrize("variable", ["SUPACLAW_MASTER_KEY", "SUPACLAW_MASTER_KEY_FILE"])
async def test_a_variable_gives_the_master_key(
    database: Database, owner: PrincipalId, tmp_path: Path, variable: str
) -> None:
    key = MasterKey.fresh()
    (tmp_path / "key").write_text(f"{key.text}\n")
    given = key.text if variable == "SUPACLAW_MASTER_KEY" else str(tmp_path / "key")
    vault = Vault(database, tmp_path, {variable: given})

    assert await vault.put(owner, "A", "value-of-a", shared=True) is None
    assert await values(vault) == {("A", True): "value-of-a"}
    assert not (tmp_path / "keys").exists()
    with pytest.raises(OwnerMustAct, match="put a new one before it there"):
        await vault.rotate_master()


async def test_a_new_master_key_goes_on_where_a_kill_left_it(vault: Vault, owner: PrincipalId, tmp_path: Path) -> None:
    old = await vault.put(owner, "A", "value-of-a", shared=True)
    await vault.put(owner, "B", "value-of-b", shared=True)
    assert old is not None
    new = MasterKey.fresh()
    write_keyring(tmp_path, Keyring((new, old)))  # a kill after this
    await vault.put(owner, "C", "value-of-c", shared=True)
    everything = {("A", True): "value-of-a", ("B", True): "value-of-b", ("C", True): "value-of-c"}
    assert await values(vault) == everything

    assert await vault.rotate_master() == new
    assert await values(vault) == everything
    assert read_keyring(tmp_path, {}) == Keyring((new,))

    assert await vault.rotate_master() != new
    assert await values(vault) == everything
    assert new.text not in (tmp_path / "keys" / "master-key").read_text()


async def test_values_stored_while_the_master_key_changes_are_kept(vault: Vault, owner: PrincipalId) -> None:
    await vault.put(owner, "S0", "value-number-0", shared=True)
    stores = [vault.put(owner, f"S{n}", f"value-number-{n}", shared=True) for n in range(1, 9)]
    await asyncio.gather(*stores[:4], vault.rotate_master(), *stores[4:])

    assert {each.value for each in await vault.opened()} == {f"value-number-{n}" for n in range(9)}
    assert len(read_keyring(vault.data, {}).keys) == 1


async def test_key_files_are_imported_once_and_go(vault: Vault, owner: PrincipalId, tmp_path: Path) -> None:
    save_keys(tmp_path, "openai", {"OPENAI_API_KEY": "sk-first"})
    await import_key_files(vault, owner)

    assert await values(vault) == {("OPENAI_API_KEY", True): "sk-first"}
    assert not (tmp_path / "keys" / "openai.env").exists()

    save_keys(tmp_path, "openai", {"OPENAI_API_KEY": "sk-first"})  # as a kill before the removal leaves it
    os.utime(tmp_path / "keys" / "openai.env", (1, 1))
    await vault.put(owner, "OPENAI_API_KEY", "sk-rotated", shared=True)
    await import_key_files(vault, owner)
    assert await values(vault) == {("OPENAI_API_KEY", True): "sk-rotated"}

    save_keys(tmp_path, "openai", {"OPENAI_API_KEY": "sk-newer"})
    os.utime(tmp_path / "keys" / "openai.env", (2**33, 2**33))
    await import_key_files(vault, owner)
    assert await values(vault) == {("OPENAI_API_KEY", True): "sk-newer"}


async def test_a_key_file_stays_while_it_cannot_be_sealed(vault: Vault, owner: PrincipalId, tmp_path: Path) -> None:
    await vault.put(owner, "OPENAI_API_KEY", "sk-old", shared=True)
    (tmp_path / "keys" / "master-key").unlink()
    save_keys(tmp_path, "openai", {"OPENAI_API_KEY": "sk-first"})
    await import_key_files(vault, owner)
    assert (tmp_path / "keys" / "openai.env").exists()


async def test_which_value_a_name_means(vault: Vault, owner: PrincipalId, member: PrincipalId) -> None:
    environ: dict[str, str] = {}
    told: list[dict[str, str]] = []
    live = LiveSecrets(vault, owner, environ, lambda found: told.append(dict(found)))
    await live.look()
    with pytest.raises(ConfigError, match="no secret KEY; `supaclaw secrets set KEY`"):
        live.lookup("KEY")

    await vault.put(owner, "KEY", "shared-value", shared=True, binding=BOUND)
    await vault.put(member, "KEY", "members-value", shared=False, binding=BOUND)
    await live.look()
    assert live.lookup("KEY") == "shared-value"
    environ["KEY"] = "set-value"
    assert live.lookup("KEY") == "set-value"
    [shared] = [each.row.facts for each in live.stored if each.row.facts.shared]
    assert live.hidden_by(shared) == "the variable KEY"
    await vault.put(owner, "KEY", "owners-value", shared=False)
    await live.look()
    assert live.lookup("KEY") == "owners-value"
    assert live.hidden_by(shared) == "your own value"

    of_owner, of_member, of_another = (live.finder(each)("KEY") for each in (owner, member, PrincipalId(owner)))
    assert of_owner is not None
    assert (of_owner.value, of_owner.binding) == ("owners-value", Binding())
    assert of_member is not None
    assert of_member.value == "members-value"
    assert of_another == of_owner
    assert told[-1] == dict.fromkeys(["shared-value", "members-value", "owners-value"], "${secret:KEY}")

    await live.used({"KEY"}, member)
    used = {each.row.facts.principal for each in await vault.opened() if each.row.last_used_at}
    assert used == {member}


VAULT = """
create schema vault;
create table vault.secrets (id uuid primary key default gen_random_uuid(), name text unique, description text,
  secret text not null);
create view vault.decrypted_secrets as select *, reverse(secret) as decrypted_secret from vault.secrets;
create function vault.create_secret(new_secret text, new_name text default null, new_description text default '',
    new_key_id uuid default null) returns uuid language sql as
  $$ insert into vault.secrets (secret, name, description) values (reverse($1), $2, $3) returning id $$;
create function vault.update_secret(secret_id uuid, new_secret text default null, new_name text default null,
    new_description text default null, new_key_id uuid default null) returns void language sql as
  $$ update vault.secrets set secret = coalesce(reverse($2), secret) where id = $1 $$;
"""


async def test_where_there_is_a_supabase_vault_it_keeps_the_values(
    database: Database, owner: PrincipalId, tmp_path: Path
) -> None:
    async with database.transaction() as tx:
        await tx.execute(VAULT)
    own, vault = Vault(database, tmp_path, {}), Vault(database, tmp_path, {}, supabase=True)
    assert await vault.put(owner, "A", "value-of-a", shared=True, binding=BOUND) is None
    await vault.put(owner, "A", "second-of-a", shared=True)
    assert await vault.bind(owner, "A", Binding(), shared=True)
    assert not (tmp_path / "keys").exists(), "it needs no master key"
    await own.put(owner, "B", "value-of-b", shared=False)

    assert await values(own) == await values(vault) == {("A", True): "second-of-a", ("B", False): "value-of-b"}
    live = LiveSecrets(vault, owner, {})
    await live.look()
    assert live.lookup("A") == "second-of-a"
    await vault.put(owner, "B", "moved-there", shared=False)
    await own.put(owner, "A", "moved-here", shared=True)
    assert await values(vault) == {("A", True): "moved-here", ("B", False): "moved-there"}
    await own.rotate_master()
    assert await vault.remove(owner, "B", shared=False)
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from vault.secrets") == 0


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("update secrets set hosts = '{https://evil.example:443}'", "was changed outside this program"),
        ("update vault.secrets set secret = reverse('value')", "was changed outside this program"),
        ("delete from vault.secrets", "has no value for A"),
        ("drop schema vault cascade", "no Supabase Vault"),
    ],
)
async def test_what_was_changed_in_a_supabase_vault_is_not_used(
    database: Database, owner: PrincipalId, tmp_path: Path, statement: str, problem: str
) -> None:
    vault = Vault(database, tmp_path, {}, supabase=True)
    with pytest.raises(OwnerMustAct, match="enable the extension"):
        await vault.put(owner, "A", "value-of-a", shared=True)
    async with database.transaction() as tx:
        await tx.execute(VAULT)
    await vault.put(owner, "A", "value-of-a", shared=True, binding=BOUND)
    async with database.transaction() as tx:
        await tx.execute(statement)
    [stored] = await vault.opened()
    assert stored.value is None
    assert problem in stored.problem
    with pytest.raises(OwnerMustAct, match=problem):
        await vault.bind(owner, "A", Binding(), shared=True)
    assert await vault.remove(owner, "A", shared=True)
