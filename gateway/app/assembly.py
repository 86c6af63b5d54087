"""Builds all parts in one order: each group from the groups before it. Starts nothing."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.app.live_config import LiveConfig
from gateway.app.parts.core import Core, Records, build_records
from gateway.app.parts.turns import Turns, build_turns
from gateway.app.parts.upkeep import Upkeep, build_upkeep
from gateway.app.parts.way_in import WayIn, build_way_in
from gateway.app.parts.way_out import WayOut, build_way_out
from gateway.app.parts.work import Work, build_work
from gateway.background.cpu.executor import Cpu
from gateway.background.upkeep.health import Stop
from gateway.background.worker import Workplace
from gateway.config.data.instance import StartHistory
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.machine import SystemClock
from gateway.domain.ids import InstanceId
from gateway.flow.live import Live
from gateway.flow.people import People
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.flow.signals import Signals
from gateway.logs import SecretMask
from gateway.store.connection.pool import Database
from gateway.tools import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that a gateway and a worker share; a gateway also has a way in."""

    core: Core
    records: Records
    way_out: WayOut
    turns: Turns
    work: Work
    upkeep: Upkeep


def open_secrets(
    environment: Environment, database: Database, people: People, mask: SecretMask, *, supabase: bool
) -> LiveSecrets:
    """The secrets in the database, not loaded yet; `mask` learns them. `supabase`: they are in its vault."""
    vault = Vault(database, environment.data, os.environ, supabase=supabase)
    return LiveSecrets(vault, people.owner.id, os.environ, mask.stored)


async def open_core(
    environment: Environment,
    workplace: Workplace,
    people: People,
    instance: InstanceId,
    secrets: LiveSecrets,
    mask: SecretMask,
) -> Core:
    """Load config.json with these secrets; raises `ConfigError`."""
    clock, database = SystemClock(), workplace.database
    return Core(
        environment=environment,
        current=await LiveConfig.loaded(environment, secrets, clock, database),
        database=database,
        people=people,
        instance=instance,
        workplace=workplace,
        clock=clock,
        failpoints=Failpoints(environment.fail),
        secrets=secrets,
        mask=mask,
        live=Live(),
        signals=Signals(),
    )


def assemble(core: Core, *, starts: StartHistory, stop: Stop, families: Sequence[Family], cpu: Cpu) -> Parts:
    """Build the parts of an instance; a lost lease sets `stop`. Raises `OwnerMustAct` for a broken job."""
    records = build_records(core, cpu=cpu)
    way_out = build_way_out(core, records)
    turns = build_turns(core, records, way_out, families=families)
    work = build_work(core, records, way_out, turns)
    upkeep = build_upkeep(core, records, way_out, turns, work, starts=starts, stop=stop)
    return Parts(core=core, records=records, way_out=way_out, turns=turns, work=work, upkeep=upkeep)


def assemble_way_in(parts: Parts) -> WayIn:
    """Build the parts that only a gateway has; raises `OwnerMustAct` for a broken command."""
    return build_way_in(parts.core, parts.records, parts.way_out, parts.turns, parts.upkeep)
