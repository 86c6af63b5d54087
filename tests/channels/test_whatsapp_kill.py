"""A process killed between neonize's callback and the end of `accept`."""

import asyncio
import signal
import sys
from pathlib import Path
from subprocess import run

from tests.contract.under_test import Gateway
from tests.contract.whatsapp import opened, receiving
from tests.fakes.whatsapp import FakeWhatsApp

DIES = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.contract.whatsapp import linked
from tests.fakes.eventually import eventually
from tests.fakes.whatsapp import FakeWhatsApp

async def accept(batch):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    with FakeWhatsApp() as whatsapp:
        async with linked(Path(sys.argv[1])) as channel:
            for number in range(3):
                whatsapp.say(str(number), stanza=f"ID{number}")
            await eventually(lambda: len(list(Path(sys.argv[1], "spool").glob("*.event"))) == 3)
            await channel.receive(accept)

asyncio.run(main())
"""


async def test_a_killed_process_has_lost_nothing_that_go_handed_over(tmp_path: Path) -> None:
    died = await asyncio.to_thread(run, [sys.executable, "-c", DIES, str(tmp_path)], timeout=60)
    assert died.returncode == -signal.SIGKILL
    gateway = Gateway()
    with FakeWhatsApp(online=False):
        async with opened(tmp_path) as channel, receiving(channel, gateway):
            received = await gateway.received(3)
    assert [(inbound.platform_id, inbound.text) for inbound in received] == [("ID0", "0"), ("ID1", "1"), ("ID2", "2")]
