"""Drives real client libraries against a gateway with a fake model: `make clients`, or some of them by name.

They are installed in build/clients, from PyPI and npm.
"""

import asyncio
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.journeys.process import GatewayProcess, configured

HERE = Path(__file__).parent
BUILD = Path("build/clients").absolute()
PYTHON = BUILD / "venv" / "bin" / "python"
NODE = BUILD / "node"
UV = Path(".uv/bin/uv").absolute()
SECONDS = 300.0
ROME = {"city": "Rome", "degrees": 21}
RULES = [
    Rule("weather", tool_calls=(Call("get_weather", {"city": "Rome"}),)),
    Rule("place", tool_calls=(Call("Place", ROME),)),
    Rule("as json", text='{"city": "Rome", "degrees": 21}'),
    Rule("read the note", tool_calls=(Call("read", {"filePath": "note.txt"}),)),
]


@dataclass(frozen=True)
class Outcome:
    name: str
    code: int
    told: str


async def run(*command: str | Path, cwd: Path | None = None, **environ: str) -> tuple[int, str]:
    """Its exit code, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env={**os.environ, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"no end after {SECONDS:g} s"
    return process.returncode or 0, out.decode(errors="replace")


async def install() -> list[str]:
    """Both kinds of client; answers what could not be installed."""
    uv = shutil.which("uv") or str(UV)
    NODE.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "node" / "package.json", NODE)
    problems = []
    for command in (
        (uv, "venv", "--quiet", "--allow-existing", BUILD / "venv"),
        (uv, "pip", "install", "--quiet", "--python", PYTHON, "--requirements", HERE / "requirements.txt"),
        ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", NODE),
    ):
        code, told = await run(*command)
        if code:
            problems.append(f"{command[0]}: {told[-2000:]}")
    return problems


async def drive(gateway: GatewayProcess, key: str, script: Path) -> Outcome:
    """One client, with what it needs to find the gateway in its environment."""
    environ = {
        "OPENAI_BASE_URL": f"{gateway.url}/v1",
        "OPENAI_API_KEY": key,
        "CLIENTS_BIN": (NODE / "node_modules" / ".bin").as_uri() + "/",
        "NO_COLOR": "1",
    }
    if script.suffix == ".py":
        return Outcome(script.stem, *await run(PYTHON, script, **environ))
    copy = Path(shutil.copy(script, NODE))
    return Outcome(script.stem, *await run("node", copy, cwd=NODE, **environ))


async def main(chosen: list[str]) -> int:
    """0 if all of them get what they ask for."""
    if problems := await install():
        print("\n".join(problems))
        return 1
    scripts = sorted(path for path in HERE.glob("*/*.*") if path.suffix in {".py", ".mjs"})
    outcomes = []
    with tempfile.TemporaryDirectory() as home:
        async with FakeModels() as models:
            models.rules = list(RULES)
            gateway = GatewayProcess(Path(home))
            gateway.configure(configured(None, models))
            try:
                await gateway.start()
                created = await gateway.command("token", "create", "clients", "--scope", "chat")
                key = re.search(r"claw_[\w-]+", created.told)
                assert key, created.told
                for script in scripts:
                    if not chosen or script.stem in chosen:
                        outcomes.append(await drive(gateway, key[0], script))
                        outcome = outcomes[-1]
                        print(f"{'failed' if outcome.code else 'ok':8}{outcome.name}", flush=True)
                        if outcome.code:
                            print(outcome.told[-3000:])
            finally:
                await gateway.close()
    return int(any(outcome.code for outcome in outcomes) or not outcomes)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
