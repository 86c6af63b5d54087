"""Live secrets: the opened secrets of a running gateway, and the value of a name for each person."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from gateway.config.data.keys import master_key_variable, read_keyring
from gateway.config.load import SecretUnopened
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.flow.secrets.vault import Stored, Vault
from gateway.secrets.facts import Binding, Facts
from gateway.secrets.injection import Usable
from gateway.store.connection.pool import Connection
from gateway.store.trust import audit, secrets
from gateway.store.trust.audit import Event

log = structlog.get_logger(__name__)


@dataclass
class LiveSecrets:
    """The secrets as of the last reload. `changed` is called for each change, on the event loop."""

    vault: Vault
    owner: PrincipalId
    environ: Mapping[str, str] = field(repr=False)
    changed: Callable[[Mapping[str, str]], None] = lambda _values: None
    stored: Sequence[Stored] = ()
    _access_tokens: dict[tuple[PrincipalId, str], tuple[str, ...]] = field(default_factory=dict, init=False, repr=False)
    """Access tokens, by person and secret."""

    async def look(self) -> None:
        """Reload the stored secrets; one that cannot be opened is logged once."""
        known = {each.problem for each in self.stored}
        self.stored = await self.vault.opened()
        for problem in sorted({each.problem for each in self.stored} - known - {""}):
            log.error("secrets.unopened", problem=problem)
        self._publish_values()

    def lookup(self, name: str) -> str:
        """The value of `$secret:NAME` in config.json; raises `ConfigError`."""
        own, shared = self._of(name, self.owner, shared=False), self._of(name, None, shared=True)
        value = (own and own.value) or self.environ.get(name) or (shared and shared.value)
        if value:
            return value
        if problem := next((each.problem for each in (own, shared) if each), ""):
            raise SecretUnopened(problem)
        raise ConfigError(f"there is no secret {name}; `supaclaw secrets set {name}` stores one")

    def versions(self) -> Mapping[str, str]:
        """A version for each secret that changes with its value."""
        return {str(each.row.id): f"{each.row.facts.version} {each.problem}" for each in self.stored}

    def finder(self, principal: PrincipalId) -> Callable[[str], Usable | None]:
        """Finds secrets for requests of this person's tools: stored ones only, since only those have a binding."""

        def find(name: str) -> Usable | None:
            best = self._best(name, principal)
            if best is None:
                return None
            value = (self.environ.get(name) if best.row.facts.shared else None) or best.value
            return Usable(value, best.row.facts.binding) if value else None

        return find

    async def key_kept(self) -> bool:
        """Whether the owner keeps the recovery key, a variable sets the key, or no secret needs one."""
        if all(each.row.envelope.kept_as for each in self.stored):
            return True
        with suppress(OwnerMustAct):
            keys = read_keyring(self.vault.data, self.environ).keys
            return master_key_variable(self.environ) is not None or (bool(keys) and await self.vault.confirmed(keys[0]))
        return False

    def hidden_by(self, facts: Facts) -> str:
        """The value that overrides this shared one for the owner; "" if none does."""
        if facts.shared and self._of(facts.name, self.owner, shared=False):
            return "your own value"
        return f"the variable {facts.name}" if facts.shared and self.environ.get(facts.name) else ""

    def binding_for(self, name: str, principal: PrincipalId) -> Binding:
        """The binding of a person's own value: the previous one, else that of the shared secret."""
        best = self._best(name, principal)
        return best.row.facts.binding if best else Binding()

    async def used(self, names: Collection[str], principal: PrincipalId, by: str = "") -> None:
        """Record the use of secrets by this person, also in the audit trail; `by` is the tool and address."""
        ids = [best.row.id for name in sorted(names) if (best := self._best(name, principal))]

        async def note(tx: Connection) -> None:
            await secrets.mark_used(tx, ids)
            for id in ids:
                await audit.note(
                    tx, Event.SECRET_USED, f"secret {id}", principal=principal, by=str(principal), detail=by
                )

        await self.vault.database.run(note)

    async def renewed(self, name: str, value: str, principal: PrincipalId) -> None:
        """Store the value that an issuer gave in place of the previous one, with its binding."""
        best = self._best(name, principal)
        if best is None:
            return  # it was removed meanwhile
        shared = best.row.facts.shared and not self.environ.get(name)
        whose = best.row.facts.principal if shared else principal
        await self.vault.put(whose, name, value, shared=shared, binding=best.row.facts.binding)
        await self.look()

    async def keep(self, name: str, value: str, principal: PrincipalId, binding: Binding) -> None:
        """Store a person's own secret that no person typed, such as the tokens of a sign-in."""
        await self.vault.put(principal, name, value, shared=False, binding=binding)
        await self.look()

    async def drop(self, name: str, principal: PrincipalId) -> None:
        """Remove a person's own secret, if there is one."""
        await self.vault.remove(principal, name, shared=False)
        await self.look()

    def hide(self, name: str, principal: PrincipalId, *values: str) -> None:
        """Mask the tokens made from this secret, in place of the previous ones."""
        if self._access_tokens.get((principal, name)) != values:
            self._access_tokens[principal, name] = values
            self._publish_values()

    def _publish_values(self) -> None:
        tokens = {each: f"${{secret:{name}}}" for (_, name), values in self._access_tokens.items() for each in values}
        values = {each.value: f"${{secret:{each.row.facts.name}}}" for each in self.stored if each.value}
        self.changed(tokens | values)

    def _best(self, name: str, principal: PrincipalId) -> Stored | None:
        return self._of(name, principal, shared=False) or self._of(name, None, shared=True)

    def _of(self, name: str, principal: PrincipalId | None, *, shared: bool) -> Stored | None:
        for each in self.stored:
            facts = each.row.facts
            if facts.name == name and facts.shared == shared and (shared or facts.principal == principal):
                return each
        return None
