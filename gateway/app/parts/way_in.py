"""The way in: the gate, the acceptance of messages, and slash commands."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway import commands
from gateway.app.parts.core import Core, Records
from gateway.app.parts.turns import Turns
from gateway.app.parts.upkeep import Upkeep
from gateway.app.parts.way_out import WayOut
from gateway.background.upkeep.timers import Loops
from gateway.commands import Command, CommandServices
from gateway.flow.inbound.acceptance import InboundFlow
from gateway.flow.inbound.commands import CommandRunner
from gateway.flow.inbound.gate import Gate
from gateway.flow.inbound.zone import ZoneOffers
from gateway.web.links import PageLinks


@dataclass(frozen=True, slots=True, kw_only=True)
class WayIn:
    """The parts that accept messages."""

    gate: Gate
    inbound: InboundFlow
    commands: Mapping[str, Command]
    command_runner: CommandRunner
    zones: ZoneOffers
    page_links: PageLinks

    @property
    def loops(self) -> Loops:
        """The loops that run while a gateway runs."""
        return {"gate": self.gate.run, "commands": self.command_runner.retry, "spool": self.inbound.spool.run}


def build_way_in(core: Core, records: Records, way_out: WayOut, turns: Turns, upkeep: Upkeep) -> WayIn:
    """Build the way in; starts nothing."""
    found = commands.discover()
    zones = ZoneOffers(core.database, turns.environments, way_out.proactive)
    page_links = PageLinks(core.current.config.web.public_url, core.clock)
    command_runner = CommandRunner(
        engine=core,
        commands=found,
        services=CommandServices(
            models=core.current.describe,
            chosen_model=core.current.chosen_model,
            voice=lambda: core.current.config.voice,
            limits=core.current.limits,
            vitals=upkeep.vitals,
            sign_in_link=page_links.sign_in,
            secret_link=page_links.secret,
            note_zone=zones.note,
            zone_of=zones.zone_of,
            processes=turns.own.processes,
        ),
        outbound=way_out.outbound,
    )
    inbound = InboundFlow(
        engine=core,
        commands=found.keys(),
        run_command=command_runner.run,
        writer=records.writer,
        rehearsal=records.rehearsal,
        journal=records.journal,
        outages=way_out.outages,
        notices=way_out.notices,
        clean=core.cleaner("inbound"),
        expect=records.embedders.expect,
    )
    core.signals.memory_low.subscribe_call(inbound.forget)
    gate = Gate(core, inbound.accept, way_out.notices, way_out.outbound, zones.offer)
    return WayIn(
        gate=gate, inbound=inbound, commands=found, command_runner=command_runner, zones=zones, page_links=page_links
    )
