"""The way out: the sender, the channels, and the gateway's own notices."""

from dataclasses import dataclass

from gateway.app.parts.core import Core, Records
from gateway.background.jobs import Delivery
from gateway.background.upkeep.timers import Loops
from gateway.flow.channels.supervisor import ChannelLeases, ChannelSupervisor
from gateway.flow.inbound.spool import Outages
from gateway.flow.outbound.proactive import Notices, ProactiveMessages
from gateway.flow.outbound.sender import Outbound
from gateway.flow.unattended.schedule_results import DeliveryFollowUp


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut(Delivery):
    """The parts that send: those by which jobs reach people, and the gateway's own."""

    notices: Notices
    leases: ChannelLeases
    channels: ChannelSupervisor

    @property
    def loops(self) -> Loops:
        """The loops that run while a gateway runs; a worker sends nothing."""
        return {"outbound": self.outbound.run, "outages": self.outages.run, "follow-up": self.follow_up.run}


def build_way_out(core: Core, records: Records) -> WayOut:
    """Build the way out; starts nothing."""
    outbound = Outbound(core, records.workspaces.root_of, core.cleaner("outbound"))
    proactive = ProactiveMessages(core, outbound, core.current.enabled_channels)
    notices = Notices(proactive)
    leases = ChannelLeases(core.database, core.instance)
    return WayOut(
        outbound=outbound,
        proactive=proactive,
        notices=notices,
        outages=Outages(records.rehearsal.succeeds, outbound, core.clock),
        follow_up=DeliveryFollowUp(core, proactive),
        leases=leases,
        channels=ChannelSupervisor(outbound, notices.tell_owner, leases, core.signals),
    )
