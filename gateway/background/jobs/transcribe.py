"""`transcribe`: reads a file that nobody has sent, once the agent opens it; and a recording again, as failures pass."""

from dataclasses import dataclass
from datetime import timedelta

from gateway.background.cpu.extraction import TextExtraction
from gateway.background.jobs import Job, JobParts
from gateway.domain.work.tasks import Claim, Status
from gateway.store.connection.pool import Connection
from gateway.store.files import files
from gateway.store.work import tasks

MAX_AGE = timedelta(days=7)
MAX_WAIT_SECONDS = 3600.0


@dataclass(slots=True)
class Transcribing(Job):
    """Waits longer and longer, an hour at most; a changed configuration of the models ends the wait.

    After a failure the problem stays, and sending or reading the file tries again.
    """

    extraction: TextExtraction

    async def run(self, run: Claim) -> None:
        """Try once; raises `RunLost`, `TryAgainLater`."""
        file = await self.engine.database.read(lambda conn: files.of_task(conn, run))
        failed = file is not None and not file.text_path
        if file is not None and (file.derived_at is None or (failed and self.extraction.hear() is not None)):
            failed = await self.extraction.read(run, file.principal_id, file.id)
        age = self.engine.clock.now() - file.created_at if file else MAX_AGE

        async def end(tx: Connection) -> None:
            if failed and age < MAX_AGE:
                await tasks.requeue(tx, run, delay=min(MAX_WAIT_SECONDS, max(60.0, age.total_seconds())), failed=False)
            else:
                await tasks.finish(tx, run, Status.COMPLETED)

        await self.engine.database.run(end)


def runner(parts: JobParts) -> Transcribing:
    """The runner of `transcribe` tasks."""
    return Transcribing(parts.engine, parts.files.extraction)
