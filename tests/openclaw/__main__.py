"""`make test-openclaw`: our memory inside the real OpenClaw, end to end; prints the table of docs/integrations.md."""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.journeys.process import GatewayProcess, configured, until
from tests.openclaw.real import MAIN, SECONDS, VERSION, RealOpenClaw, install

SUMMARY = "## Goal\nName the boat.\n## Decisions\nNone.\n## Worth remembering\n- The boat is called Nina."
MOST_KILLS = 200


@dataclass
class Report:
    """Rows of the table; a claim that does not hold ends the run."""

    rows: list[str] = field(default_factory=list)

    def holds(self, claim: str, truth: bool, seen: object = "") -> None:
        self.rows.append(f"| {claim} | {'yes' if truth else 'NO'} | {seen} |")
        print(self.rows[-1], flush=True)
        if not truth:
            raise SystemExit(f"does not hold: {claim}: {seen}")


@dataclass
class Place:
    """A SupaClaw and an OpenClaw, side by side."""

    ours: GatewayProcess
    theirs: RealOpenClaw
    models: FakeModels

    async def supaclaw(self, *arguments: str, **environ: str) -> tuple[int, str]:
        more = self.theirs.environ | environ | {"SUPACLAW_PORT": self.ours.url.rpartition(":")[2]}
        process = await self.ours.run(*arguments, **more)
        out, err = await asyncio.wait_for(process.communicate(), 300)
        return process.returncode or 0, (out + err).decode()

    async def act(self, command: str, *more: str, **environ: str) -> tuple[int, str]:
        place = ("--workspace", str(self.theirs.workspace), "--state", str(self.theirs.state))
        return await self.supaclaw("openclaw", command, *place, *more, **environ)

    async def texts(self, pattern: str) -> list[str]:
        rows = await self.ours.rows(
            "select kind || ': ' || text as said from messages where text like $1", f"%{pattern}%"
        )
        return [str(row["said"]) for row in rows]

    async def prompt(self, pattern: str) -> str:
        """The newest request with it, all of it, as text."""
        return next((str(asked.body) for asked in reversed(self.models.asked) if pattern in str(asked.body)), "")


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    root = Path(tempfile.mkdtemp(prefix="supaclaw-openclaw-"))
    (root / "ours").mkdir()
    rules = (
        Rule("the summary of this record", text=SUMMARY),
        Rule("what do you know of the boat mk5x", tool_calls=(Call("memory_search", {"query": "boat"}),)),
    )
    async with FakeModels(*rules) as models:
        ours = GatewayProcess(root / "ours", fresh=True)
        theirs = RealOpenClaw(root / "theirs", models.base_url)
        ours.configure(configured(models=models, owner={"name": "Ada", "telegram": "1"}))
        theirs.make()
        try:
            await ours.start()
            yield (at := Place(ours, theirs, models))
        except BaseException:
            log = theirs.home / "gateway.log"
            print(await asyncio.to_thread(lambda: log.read_text()[-4000:] if log.exists() else "never started"))
            for table in ("sessions", "tasks", "memories"):
                for row in await ours.rows(f"select * from {table}"):
                    print(table, {name: str(value)[:90] for name, value in row.items() if value})
            print(
                "\n".join([*ours.told[-20:], *await at.texts(""), *(asked.last_user[-300:] for asked in models.asked)])
            )
            raise
        finally:
            await theirs.stop()
            await ours.close()
            shutil.rmtree(root, ignore_errors=True)


async def use(at: Place, report: Report) -> None:
    before = at.theirs.snapshot()
    code, told = await at.act("install", "--yes")
    report.holds("`supaclaw openclaw install` completes", code == 0, told.strip().splitlines()[-1])
    report.holds(
        "MEMORY.md, the daily log and the sessions of `openclaw-agent.sqlite` are imported",
        "Imported: 1 memory, 2 sessions" in told,
        told.splitlines()[0],
    )
    await at.theirs.start()
    await at.theirs.says("hello mk1x", "k1")
    await until(lambda: _true(at.texts("fin1x")))
    prompt = await at.prompt("mk1x")
    report.holds("what SupaClaw remembers is in the prompt", "What SupaClaw remembers" in prompt and "mk77x" in prompt)
    report.holds("the plugin's guidance is in the prompt", "Memory (SupaClaw)" in prompt)
    both = sorted(await at.texts("mk1x")) + sorted(await at.texts("fin1x"))
    report.holds("both sides are in Postgres, once each", len(both) == 2, f"{len(both)} messages")
    await at.theirs.says("what do you know of the boat mk5x", "k5")
    await until(lambda: _true(at.texts("ok")))
    found = str([message for message in at.models.bodies[-1]["messages"] if message["role"] == "tool"])
    report.holds("`memory_search` answers with our rows", "supaclaw/" in found and "Nina" in found, "the boat is Nina")
    await secretly(at.theirs)
    await until(lambda: _asked(at, "mk8x"), 90)
    await at.theirs.says("hello mk2x", "k2")
    await until(lambda: _true(at.texts("fin2x")), 90)
    report.holds("an incognito session is not logged", not await at.texts("mk8x"))
    await at.theirs.call("sessions.reset", key=MAIN, reason="new")  # what OpenClaw's own clients make of /new
    await until(lambda: _summaries(at), 90)
    report.holds("`/new` ends the session, with a summary", True, SUMMARY.rpartition("- ")[2])
    await outage(at, report)
    await at.theirs.stop()
    code, told = await at.act("verify")
    report.holds("`supaclaw openclaw verify` passes", code == 0, told.strip())
    code, told = await at.act("uninstall", "--yes")
    after = {name: data for name, data in at.theirs.snapshot().items() if name in before or b"supaclaw" in data}
    report.holds(
        "uninstall: configuration and workspace byte for byte", code == 0 and after == before, differing(before, after)
    )
    left = at.theirs.ours_in_state()
    report.holds("nothing of ours is left in OpenClaw's state folder", not left, ", ".join(left))
    tokens = await at.supaclaw("token", "list", "--json")
    report.holds("its token is revoked", '"openclaw' not in tokens[1])
    await compare(at, report)


async def secretly(theirs: RealOpenClaw) -> None:
    made = await theirs.call("sessions.create", agentId="main", incognito=True)
    await theirs.says("a secret mk8x", "k8", json.loads(made)["key"])


async def compare(at: Place, report: Report) -> None:
    """What OpenClaw writes by itself, beside what it writes in a life without us."""
    plain = RealOpenClaw(at.theirs.home.with_name("plain"), at.models.base_url)
    plain.make()
    try:
        for key in ("k99", "k1"):  # it is started twice
            await plain.start()
            await plain.says(f"hello m{key}x", key)
            await until(plain.has_kept(f"fin{key[1:]}x"), SECONDS)
            if key == "k1":
                await secretly(plain)
                await plain.call("sessions.reset", key=MAIN, reason="new")
            await plain.stop()
    finally:
        await plain.stop()
    ours, without = at.theirs.own_writes(), plain.own_writes()
    differences = [*(f"only with us: {name}" for name in sorted(ours - without))]
    differences += [f"only without us: {name}" for name in sorted(without - ours)]
    report.holds(
        "OpenClaw's own files and tables are those of a run without us",
        not differences,
        "; ".join(differences) or f"{len(without)} names",
    )


async def outage(at: Place, report: Report) -> None:
    """A turn while our gateway is down, which it learns of when it is back."""
    await at.ours.kill()
    port = at.ours.url.rpartition(":")[2]
    await at.theirs.says("offline mk7x", "k7")
    spool = at.theirs.state / "supaclaw" / "spool"
    await until(lambda: _spooled(spool), 60)
    waiting = len(list(spool.glob("*.json")))
    await at.ours.start(SUPACLAW_PORT=port)
    await until(lambda: _true(at.texts("fin7x")), 90)
    await until(lambda: _empty(spool), 30)
    report.holds("gateway down: OpenClaw answers, the log waits and is replayed", True, f"{waiting} entries")


async def hooks(at: Place, report: Report) -> None:
    """The hooks that log and inject for those who prefer them to the plugin."""
    before = at.theirs.snapshot()
    code, told = await at.act("install", "--yes", "--hooks")
    report.holds("`install --hooks` completes", code == 0, told.strip().splitlines()[-1])
    await at.theirs.start()
    listed = json.loads(await at.theirs.cli("hooks", "list", "--json"))["hooks"]
    ready = sorted(hook["name"] for hook in listed if "supaclaw" in hook["name"] and hook["eligible"])
    report.holds("OpenClaw knows both hooks", ready == ["supaclaw-bootstrap", "supaclaw-logger"], ", ".join(ready))
    await at.theirs.says("hello mk4x", "k4")
    await until(lambda: _true(at.texts("mk4x")), 90)
    await until(lambda: _asked(at, "mk4x"), 90)
    logged, prompt = await at.texts("mk4x"), await at.prompt("mk4x")
    report.holds("`supaclaw-logger` logs what the person says, once", len(logged) == 1, logged[0])
    report.holds("`supaclaw-bootstrap` puts what SupaClaw remembers into the prompt", "mk77x" in prompt)
    for key in ("k3", "k6"):  # what is shorter gets no summary
        await at.theirs.says(f"more m{key}x", key)
        await until(lambda key=key: _true(at.texts(f"m{key}x")), 90)
    await at.theirs.call("sessions.reset", key=MAIN, reason="new")
    await until(lambda: _summaries(at), 90)
    report.holds("with hooks, too, `/new` ends the session, with a summary", True, SUMMARY.rpartition("- ")[2])
    await at.theirs.stop()
    code, _ = await at.act("uninstall", "--yes")
    after = {name: data for name, data in at.theirs.snapshot().items() if name in before or b"supaclaw" in data}
    report.holds(
        "uninstall of the hooks: byte for byte as before", code == 0 and after == before, differing(before, after)
    )


async def _true(rows: Awaitable[list[str]]) -> bool:
    return bool(await rows)


async def _asked(at: Place, text: str) -> bool:
    return bool(await at.prompt(text))


async def _summaries(at: Place) -> bool:
    return bool(await at.ours.rows("select 1 from memories where text like '%Nina%' and origin = 'summary'"))


async def _spooled(spool: Path) -> bool:
    return await asyncio.to_thread(lambda: any("fin7x" in file.read_text() for file in spool.glob("*.json")))


async def _empty(spool: Path) -> bool:
    return await asyncio.to_thread(lambda: not any(spool.glob("*.json")))


def differing(before: dict[str, bytes], after: dict[str, bytes]) -> str:
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f"{len(before)} files and folders" if not names else f"different: {', '.join(names)}"


async def kills(at: Place, report: Report) -> None:
    """Both commands are killed again and again; then all is as it was."""
    before = at.theirs.snapshot()
    await killed(at, report, "install")
    code, told = await at.act("verify")
    report.holds("afterwards `verify` passes", code == 0, told.strip())
    await killed(at, report, "uninstall")
    after = at.theirs.snapshot()
    report.holds(
        "afterwards configuration and workspace are byte for byte as before", after == before, differing(before, after)
    )


async def killed(at: Place, report: Report, command: str) -> None:
    """It is killed at one place after the other, until it completes."""
    places, steps, n = 0, list[str](), 1
    while (done := await at.act(command, "--yes", SUPACLAW_FAIL=f"openclaw.step:{n}"))[0] == -9:
        record = json.loads((at.theirs.workspace / ".supaclaw-install.json").read_text())
        places += 1
        again = steps and steps[-1] == record["currentStep"]
        n = (n + 1 if command == "install" else 3) if again else 2  # a removal has less to do each time
        if n == 2:
            steps.append(record["currentStep"])
        assert places < MOST_KILLS, "it is killed for ever"
    claim = f"{command}: kill -9 in each step, at {places} places; the next call goes on"
    report.holds(claim, done[0] == 0, ", ".join(steps) if done[0] == 0 else done[1])


async def prove(chosen: set[str]) -> None:
    install()
    report = Report()
    if not chosen or "use" in chosen:
        async with place() as at:
            await at.theirs.start()  # so that OpenClaw has written what it writes by itself
            await at.theirs.says("hello mk99x", "k99")
            await until(at.theirs.has_kept("fin99x"), SECONDS)
            await at.theirs.stop()
            await use(at, report)
    if not chosen or "hooks" in chosen:
        async with place() as at:
            await at.theirs.start()
            await at.theirs.stop()
            await hooks(at, report)
    if not chosen or "kills" in chosen:
        async with place() as at:
            await kills(at, report)
    print(f"\nOpenClaw {VERSION}:\n\n| claim | holds | seen |\n|---|---|---|\n" + "\n".join(report.rows))


if __name__ == "__main__":
    asyncio.run(prove(set(sys.argv[1:])))
