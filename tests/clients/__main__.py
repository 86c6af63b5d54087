"""Drives real client libraries against a gateway with a fake model: `make clients`, or some of them by name.

Each is installed in a folder of its own in build/clients, from PyPI or npm, in its newest version; what fails with one
stops none of the others. The result is a table for docs/api.md.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.journeys.process import GatewayProcess, configured

HERE = Path(__file__).parent
BUILD = Path("build/clients").absolute()
UV = Path(".uv/bin/uv").absolute()
INSTALL_SECONDS = 900.0
SECONDS = 600.0
ROME = {"city": "Rome", "degrees": 21}
RULES = [
    Rule("write code mk950x", text="Thought: I know.\n<code>\nfinal_answer('fin950x')\n</code>"),
    Rule("weather", tool_calls=(Call("get_weather", {"city": "Rome"}),)),
    Rule("Observation", tool_calls=(Call("final_answer", {"answer": "fin951x"}),)),
    Rule("place", tool_calls=(Call("Place", ROME),)),
    Rule("as json", text=json.dumps(ROME)),
    Rule("opencode reads", tool_calls=(Call("read", {"filePath": "note.txt"}),)),
    Rule("continue reads", tool_calls=(Call("Read", {"filepath": "note.txt"}),)),
]


@dataclass(frozen=True)
class Client:
    """`script` is in node/ or python/; the version told is that of the first of `packages`."""

    name: str
    script: str
    packages: tuple[str, ...]

    @property
    def path(self) -> Path:
        return HERE / ("node" if self.script.endswith(".mjs") else "python") / self.script

    @property
    def folder(self) -> Path:
        return BUILD / self.path.stem

    @property
    def tried(self) -> str:
        """What its script says in its first line, behind the name."""
        first = self.path.read_text(encoding="utf-8").splitlines()[0]
        return first.strip('"/ .').partition(": ")[2]


CLIENTS = (
    Client("openai-python", "openai_python.py", ("openai",)),
    Client("openai-node", "openai_node.mjs", ("openai",)),
    Client("LangChain", "langchain_tools.py", ("langchain-openai",)),
    Client("LlamaIndex", "llama_index_tools.py", ("llama-index-llms-openai-like",)),
    Client("AI SDK", "ai_sdk.mjs", ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "zod")),
    Client("pydantic-ai", "pydantic_ai_tools.py", ("pydantic-ai-slim[openai]",)),
    Client("instructor", "instructor_model.py", ("instructor",)),
    Client("openai-agents", "openai_agents_tools.py", ("openai-agents",)),
    Client("smolagents", "smolagents_tools.py", ("smolagents[openai]",)),
    Client("llm", "llm_cli.py", ("llm",)),
    Client("opencode", "opencode.mjs", ("opencode-ai",)),
    Client("Continue", "continue_cli.mjs", ("@continuedev/cli",)),
)


@dataclass(frozen=True)
class Outcome:
    client: Client
    version: str
    code: int
    told: str

    @property
    def line(self) -> str:
        """A row of the table."""
        return f"| {self.client.name} | {self.version} | {self.client.tried} | {'failed' if self.code else 'works'} |"


async def run(*command: str | Path, seconds: float, cwd: Path | None = None, **environ: str) -> tuple[int, str]:
    """Its exit code, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env={**os.environ, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return 124, f"no end after {seconds:g} s"
    return process.returncode or 0, out.decode(errors="replace")


async def install(client: Client) -> tuple[str, str]:
    """The version that came, or "" and what went wrong."""
    shutil.rmtree(client.folder, ignore_errors=True)
    client.folder.mkdir(parents=True)
    name = re.sub(r"\[.*", "", client.packages[0])
    if client.script.endswith(".mjs"):
        npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", client.folder)
        code, told = await run(*npm, *client.packages, seconds=INSTALL_SECONDS)
        about = client.folder / "node_modules" / name / "package.json"
        return (str(json.loads(about.read_text())["version"]), "") if code == 0 else ("", told)
    uv, python = shutil.which("uv") or UV, client.folder / "venv" / "bin" / "python"
    # compiled once here: the first import of some takes a minute otherwise
    pip = (uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python)
    for command in ((uv, "venv", "--quiet", client.folder / "venv"), (*pip, *client.packages)):
        code, told = await run(*command, seconds=INSTALL_SECONDS)
        if code:
            return "", told
    ask = f"import importlib.metadata as m; print(m.version({name!r}))"
    return (await run(python, "-c", ask, seconds=SECONDS))[1].strip(), ""


async def drive(client: Client, gateway: GatewayProcess, key: str) -> Outcome:
    """Install one client and run its script, with what it needs to find the gateway in its environment."""
    version, problem = await install(client)
    if problem or not version:
        return Outcome(client, version or "not installed", 1, problem)
    environ = {
        "OPENAI_BASE_URL": f"{gateway.url}/v1",
        "OPENAI_API_KEY": key,
        "CLIENTS_BIN": (client.folder / "node_modules" / ".bin").as_uri() + "/",
        "NO_COLOR": "1",
    }
    # beside what was installed, for that is where node looks
    copy = shutil.copy(client.path, client.folder)
    program = "node" if client.script.endswith(".mjs") else client.folder / "venv" / "bin" / "python"
    code, told = await run(program, copy, cwd=client.folder, seconds=SECONDS, **environ)
    return Outcome(client, version, code, told)


async def drive_all(chosen: list[str], gateway: GatewayProcess) -> list[Outcome]:
    created = await gateway.command("token", "create", "clients", "--scope", "chat")
    key = re.search(r"claw_[\w-]+", created.told)
    assert key, created.told
    outcomes = []
    for client in CLIENTS:
        if not chosen or client.path.stem in chosen or client.name in chosen:
            outcome = await drive(client, gateway, key[0])
            outcomes.append(outcome)
            print(f"{'failed' if outcome.code else 'ok':8}{client.name} {outcome.version}", flush=True)
            if outcome.code:
                print(outcome.told[-3000:], flush=True)
    return outcomes


async def main(chosen: list[str]) -> int:
    """0 if all of them get what they ask for."""
    with tempfile.TemporaryDirectory() as home:
        async with FakeModels() as models:
            models.rules = list(RULES)
            gateway = GatewayProcess(Path(home))
            gateway.configure(configured(None, models))
            try:
                await gateway.start()
                outcomes = await drive_all(chosen, gateway)
            finally:
                await gateway.close()
    print("\n| Client | Version | Tried | |\n|---|---|---|---|")
    print("\n".join(outcome.line for outcome in outcomes))
    return int(any(outcome.code for outcome in outcomes) or not outcomes)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
