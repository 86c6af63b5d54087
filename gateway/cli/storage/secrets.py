"""`supaclaw secrets`: values that the model never sees. A value comes from a prompt or standard input."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeVar

from gateway.cli.connections.database import require_owner, with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, argument, ask, ask_secret_text, flag, option, print_rows
from gateway.config.data.keys import master_key_variable, read_keyring
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.secrets.encryption import MasterKey
from gateway.secrets.facts import MAX_VALUE, Binding
from gateway.store.connection.pool import Database

Result = TypeVar("Result")
Name = Annotated[str, argument("Such as WEATHER_KEY, in config.json $secret:WEATHER_KEY.", "NAME")]
Own = Annotated[bool, flag("For you alone (default: for everybody).", "--own")]
Hosts = Annotated[list[str] | None, option("Host that may get it, like api.example.org; repeatable.", "HOST", "--host")]
Tools = Annotated[list[str] | None, option("Tool that may send it; repeatable.", "NAME", "--tool")]
Header = Annotated[str, option("The only header it may be sent in.", "NAME")]
FormField = Annotated[str, option("The only field of a token request that may hold it.", "NAME", "--field")]
COLUMNS = ("name", "whose", "hosts", "tools", "place", "changed_at", "last_used_at", "problem")
KEEP = (
    "This is the recovery key of your secrets. Keep it outside this machine: no backup contains it, and without it "
    "they can't be decrypted. `supaclaw secrets confirm` asks whether you have."
)


def put(
    name: Name, host: Hosts = None, tool: Tools = None, header: Header = "", field: FormField = "", own: Own = False
) -> None:
    """Store a secret. The first one prints the recovery key."""
    binding = _binding(host, tool, header, field)
    value = _value(name)
    made = _with_vault(lambda vault, owner: vault.put(owner, name, value, shared=not own, binding=binding))
    echo(f"{name} is stored")
    if made:
        _show(made)


def show(as_json: AsJson = False) -> None:
    """List the secrets, without their values."""

    async def work(vault: Vault, owner: PrincipalId) -> list[Mapping[str, object]]:
        secrets = LiveSecrets(vault, owner, os.environ)
        await secrets.look()
        return [
            {
                "name": facts.name,
                "whose": "everybody" if facts.shared else "yours" if facts.principal == owner else facts.principal,
                **{name: getattr(facts.binding, name) for name in ("hosts", "tools", "place")},
                **{name: getattr(each.row, name) for name in ("created_at", "changed_at", "last_used_at")},
                "problem": each.problem or (f"hidden by {cover}" if (cover := secrets.hidden_by(facts)) else ""),
            }
            for each in secrets.stored
            for facts in [each.row.facts]
        ]

    print_rows(_with_vault(work), COLUMNS, as_json=as_json, none="No secrets; `supaclaw secrets set NAME` stores one.")


def rotate(
    name: Annotated[str, argument("The secret that gets a new value.", "NAME")] = "",
    master: Annotated[bool, flag("Change the master key instead.", "--master")] = False,
    own: Own = False,
) -> None:
    """Replace a secret's value, keeping its bindings; or the master key."""
    if master == bool(name):
        raise OwnerMustAct("name a secret, or use --master")
    if master:
        _show(_with_vault(lambda vault, _owner: vault.rotate_master()))
        return
    _require(name, _with_vault(lambda vault, owner: vault.holds(owner, name, shared=not own)))
    value = _value(name)
    _with_vault(lambda vault, owner: vault.put(owner, name, value, shared=not own))
    echo(f"{name} has its new value")


def remove(name: Name, own: Own = False) -> None:
    """Delete a secret."""
    _require(name, _with_vault(lambda vault, owner: vault.remove(owner, name, shared=not own)))
    echo(f"{name} is deleted")


def bind(
    name: Name, host: Hosts = None, tool: Tools = None, header: Header = "", field: FormField = "", own: Own = False
) -> None:
    """Set where a secret may be sent, replacing the earlier bindings."""
    binding = _binding(host, tool, header, field) or Binding()
    _require(name, _with_vault(lambda vault, owner: vault.bind(owner, name, binding, shared=not own)))
    echo(f"{name}: {', '.join(binding.hosts) or 'no host'}; {', '.join(binding.tools) or 'no tool'}; {binding.place}")


def confirm() -> None:
    """Show the recovery key, and confirm that you keep it elsewhere."""
    keys = read_keyring(Environment.read(os.environ).data, os.environ).keys
    if not keys:
        raise OwnerMustAct("there is no master key yet; the first secret makes one")
    if variable := master_key_variable(os.environ):
        echo(f"{variable} sets the master key; keep a copy of its value elsewhere")
        return
    _show(keys[0])
    if ask("Once you have stored it, type its last group").upper() != keys[0].text[-4:]:
        raise OwnerMustAct("that isn't its last group; nothing was confirmed")
    _with_vault(lambda vault, _owner: vault.confirm(keys[0]))
    echo("confirmed")


def recover() -> None:
    """Enter the recovery key if the master key is lost."""
    recover_secrets(ask_secret_text("Recovery key", MAX_VALUE))
    echo("a running gateway loads it within a minute")


def recover_secrets(text: str) -> None:
    """Install this recovery key as master key; raises `OwnerMustAct` if it can't decrypt the stored secrets."""
    _with_vault(lambda vault, _owner: vault.recover(text))
    echo("the master key is in place")


def _with_vault(work: Callable[[Vault, PrincipalId], Awaitable[Result]]) -> Result:
    async def with_owner(database: Database) -> Result:
        owner = (await database.read(require_owner)).id
        environment = Environment.read(os.environ)
        in_vault = load_early(environment, os.environ).database.in_supabase_vault
        return await work(Vault(database, environment.data, os.environ, supabase=in_vault), owner)

    return with_database(with_owner)


def _binding(hosts: list[str] | None, tools: list[str] | None, header: str, field: str) -> Binding | None:
    """The binding that the options describe; None without options."""
    if header and field:
        raise OwnerMustAct("a secret is sent in one place: use --header or --field")
    place = f"header:{header}" if header else f"field:{field}" if field else ""
    return Binding.of(hosts or (), tools or (), place) if hosts or tools or place else None


def _require(name: str, there: bool) -> None:
    if not there:
        raise OwnerMustAct(f"there is no secret {name}; `supaclaw secrets list` shows them")


def _value(name: str) -> str:
    return ask_secret_text(f"Value of {name}", MAX_VALUE + 2)


def _show(key: MasterKey) -> None:
    echo(f"\n{key.text}\n")
    echo(KEEP)
