"""Live secrets: what a running gateway has opened, and which value a name means for whom."""

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
    """The secrets as they were at the last look. `changed` is told of each change, on the event loop."""

    vault: Vault
    owner: PrincipalId
    environ: Mapping[str, str] = field(repr=False)
    changed: Callable[[Mapping[str, str]], None] = lambda _values: None
    stored: Sequence[Stored] = ()
    _made: dict[tuple[PrincipalId, str], str] = field(default_factory=dict, init=False, repr=False)
    """Access tokens, by whose and from which secret."""

    async def look(self) -> None:
        """Open what is stored now; what cannot be opened is logged, once."""
        known = {each.problem for each in self.stored}
        self.stored = await self.vault.opened()
        for problem in sorted({each.problem for each in self.stored} - known - {""}):
            log.error("secrets.unopened", problem=problem)
        self._tell()

    def lookup(self, name: str) -> str:
        """The value that `$secret:NAME` in config.json means; raises `ConfigError`."""
        own, shared = self._of(name, self.owner, shared=False), self._of(name, None, shared=True)
        value = (own and own.value) or self.environ.get(name) or (shared and shared.value)
        if value:
            return value
        if problem := next((each.problem for each in (own, shared) if each), ""):
            raise SecretUnopened(problem)
        raise ConfigError(f"there is no secret {name}; `supaclaw secrets set {name}` stores one")

    def versions(self) -> Mapping[str, str]:
        """Changes whenever a value does."""
        return {str(each.row.id): f"{each.row.facts.version} {each.problem}" for each in self.stored}

    def finder(self, principal: PrincipalId) -> Callable[[str], Usable | None]:
        """What may be put into requests of this person's tools: only what is stored, for only that is bound."""

        def find(name: str) -> Usable | None:
            best = self._best(name, principal)
            if best is None:
                return None
            value = (self.environ.get(name) if best.row.facts.shared else None) or best.value
            return Usable(value, best.row.facts.binding) if value else None

        return find

    async def key_kept(self) -> bool:
        """Whether the owner has confirmed to keep the recovery key, a variable gives the key, or nothing needs it."""
        if all(each.row.envelope.kept_as for each in self.stored):
            return True
        with suppress(OwnerMustAct):
            keys = read_keyring(self.vault.data, self.environ).keys
            return master_key_variable(self.environ) is not None or (bool(keys) and await self.vault.confirmed(keys[0]))
        return False

    def hidden_by(self, facts: Facts) -> str:
        """What the owner gets instead of this shared value; "" if it is the one that counts."""
        if facts.shared and self._of(facts.name, self.owner, shared=False):
            return "your own value"
        return f"the variable {facts.name}" if facts.shared and self.environ.get(facts.name) else ""

    def binding_for(self, name: str, principal: PrincipalId) -> Binding:
        """What a person's own value is bound to: as theirs before, else as the shared one, for its owner chose that."""
        best = self._best(name, principal)
        return best.row.facts.binding if best else Binding()

    async def used(self, names: Collection[str], principal: PrincipalId, by: str = "") -> None:
        """Note, in the audit trail too, that these go into a request of this person's; `by` is its tool and address."""
        ids = [best.row.id for name in sorted(names) if (best := self._best(name, principal))]

        async def note(tx: Connection) -> None:
            await secrets.mark_used(tx, ids)
            for id in ids:
                await audit.note(
                    tx, Event.SECRET_USED, f"secret {id}", principal=principal, by=str(principal), detail=by
                )

        await self.vault.database.run(note)

    async def renewed(self, name: str, value: str, principal: PrincipalId) -> None:
        """Store a value that its issuer gave in place of the one before, bound as that; no variable may hide it."""
        best = self._best(name, principal)
        if best is None:
            return  # it was removed meanwhile
        shared = best.row.facts.shared and not self.environ.get(name)
        whose = best.row.facts.principal if shared else principal
        await self.vault.put(whose, name, value, shared=shared, binding=best.row.facts.binding)
        await self.look()

    def hide(self, name: str, principal: PrincipalId, value: str) -> None:
        """Keep a value that was made from this secret, in place of the one before, out of texts."""
        self._made[principal, name] = value
        self._tell()

    def _tell(self) -> None:
        made = {value: f"${{secret:{name}}}" for (_, name), value in self._made.items()}
        values = {each.value: f"${{secret:{each.row.facts.name}}}" for each in self.stored if each.value}
        self.changed(made | values)

    def _best(self, name: str, principal: PrincipalId) -> Stored | None:
        return self._of(name, principal, shared=False) or self._of(name, None, shared=True)

    def _of(self, name: str, principal: PrincipalId | None, *, shared: bool) -> Stored | None:
        for each in self.stored:
            facts = each.row.facts
            if facts.name == name and facts.shared == shared and (shared or facts.principal == principal):
                return each
        return None
