"""`python -m benchmarks.takeover`: how long after a gateway's death another one answers on its channel.

Three real gateways share an embedded Postgres; the messenger and the model are servers on this machine. At each death a
message arrives that nobody has taken yet.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from gateway.store.embedded.postgres import EmbeddedPostgres
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured

DEATHS = 10
_HOLDER = """select holder::text from leases where name = 'channel telegram' and expires_at > now()"""


async def measure(gateways: list[GatewayProcess], telegram: FakeTelegram) -> list[float]:
    """Seconds from each death to the answer."""
    for gateway in gateways:
        await gateway.start()
    answered = []
    for number in range(1, DEATHS + 1):
        holder = await _holder(gateways)
        began = perf_counter()
        await holder.kill()
        telegram.say(f"hello mk{number}x", OWNER)
        await telegram.wait_for(partial(_says, f"fin{number}x"))
        answered.append(perf_counter() - began)
        await holder.start()
    return answered


def _says(word: str, telegram: FakeTelegram) -> bool:
    return any(word in sent.text for sent in telegram.sent)


async def _holder(gateways: list[GatewayProcess]) -> GatewayProcess:
    while True:
        if found := await gateways[0].rows(_HOLDER):
            ids = {(gateway.data / "instance").read_text().strip(): gateway for gateway in gateways}
            return ids[found[0]["holder"]]
        await asyncio.sleep(0.1)


async def run() -> list[float]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="supaclaw-bench-")))
        postgres = EmbeddedPostgres(folder)
        dsn = await postgres.start()
        stack.push_async_callback(postgres.stop)
        telegram = await stack.enter_async_context(FakeTelegram())
        config = configured(telegram, await stack.enter_async_context(FakeModels()))
        gateways = [GatewayProcess(folder / name, dsn, fresh=True) for name in ("first", "second", "third")]
        for gateway in gateways:
            gateway.home.mkdir()
            gateway.configure(config)
            stack.push_async_callback(gateway.close)
        return await measure(gateways, telegram)


def main() -> None:
    found = asyncio.run(run())
    print(f"death → answer   p50 {median(found):.1f} s, longest {max(found):.1f} s of {len(found)}   (≤ 15 s)")


if __name__ == "__main__":
    main()
