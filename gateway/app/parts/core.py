"""The core, which a start creates first, and the records: the stored messages and files, and where they are."""

from dataclasses import dataclass
from functools import partial

from gateway.app.live_config import Embedders, LiveConfig
from gateway.background.cpu.executor import Cpu, ScratchFolder
from gateway.background.cpu.extraction import TextExtraction
from gateway.background.jobs import FileParts
from gateway.background.upkeep.housekeeping import Checkpointing
from gateway.background.worker import Workplace
from gateway.config.environment import Environment
from gateway.flow.engine import Engine
from gateway.flow.files.uploads import Uploads
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.inbound.acceptance import Rehearsal
from gateway.flow.inbound.persistence import InboundWriter
from gateway.flow.journal.journal import Journal
from gateway.flow.secrets.guard import Clean, cleaned
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.turn.budgets import SharedBudgets
from gateway.logs import SecretMask
from gateway.net.addresses import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Core(Engine):
    """The parts that exist before all others."""

    environment: Environment
    current: LiveConfig
    """The current config.json; ask at each use."""
    secrets: LiveSecrets
    mask: SecretMask
    workplace: Workplace

    def cleaner(self, where: str) -> Clean:
        """The guard that keeps live secrets out of the texts of one place, which the log names."""
        return partial(cleaned, self.mask.leaks, where)

    def net_rules(self) -> Rules:
        """The addresses that may be connected to, as configured now."""
        return Rules.of(self.current.config.net.private_allow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records(FileParts):
    """The parts that store messages and files: those that jobs use, and the gateway's own."""

    writer: InboundWriter
    rehearsal: Rehearsal
    checkpointing: Checkpointing
    embedders: Embedders
    budgets: SharedBudgets
    cpu: Cpu

    async def close(self) -> None:
        """End the CPU process and that of the local embedding model."""
        await self.embedders.close()
        await self.cpu.close()


def build_records(core: Core, *, cpu: Cpu) -> Records:
    """Build the records; starts nothing."""
    environment, clock = core.environment, core.clock
    journal = Journal(core.database, core.people, environment.workspace, environment.data, clock)
    if core.workplace.kind == "gateway":  # two processes that write one journal file would corrupt it
        core.live.listen(journal.changed)
    writer = InboundWriter(core, journal)
    workspaces = Workspaces(
        engine=core,
        folder=environment.workspace,
        others=environment.data / "principals",
        unverified=journal.check.holds,
        member_mb=lambda: core.current.config.limits.member_mb,
    )
    current, budgets = core.current, SharedBudgets(core.database, core.current.limits, clock)
    scratch = ScratchFolder(environment.state / "ingest")
    return Records(
        journal=journal,
        writer=writer,
        rehearsal=Rehearsal(core.database, writer, clock),
        workspaces=workspaces,
        uploads=Uploads(core.database, workspaces, clock, core.current.longest_file),
        extraction=TextExtraction(core, workspaces, cpu, scratch, current.hear, current.highest_heard, budgets),
        checkpointing=Checkpointing(core.database, environment.workspace, environment.data / "checkpoints", clock),
        embedders=Embedders(core.current, clock, core.cleaner("embedding")),
        budgets=budgets,
        cpu=cpu,
    )
