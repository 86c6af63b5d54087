"""Scripts of confirmed files, in the real jail."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.agent.tool_files import scripts
from gateway.agent.tool_sources import AnyArguments
from gateway.domain.principals import Label
from gateway.net.addresses import Rules
from gateway.sandbox.command import Tier
from gateway.sandbox.workshop import Workshop
from gateway.workspace.files.tree import Workspace
from tests.agent.tool_files.test_calls import Desk
from tests.agent.tool_files.test_calls import desk as desk
from tests.fakes.caller import CALLER
from tests.sandbox.tiers import confines
from tests.tools.desk import Shelf, commands_on
from tests.workspace.tool_files.writing import put, tool_md

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")
ECHO = """\
import json, sys
given = json.load(sys.stdin)
print(json.dumps({"given": given, "twice": given["city"] * 2}))
"""
CONFIG = "command: python3 -I run.py\nparameters: [{name: city, required: true}]\n"


@dataclass
class Bench:
    desk: Desk
    labels: Shelf
    commands: WorkspaceCommands

    async def confirm(self, script: str = ECHO, config: str = CONFIG) -> None:
        await self.desk.confirm(tool_md(config=config, type="script"), run__py=script)

    async def run(self, label: Label = Label.OWNER, **given: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads((await self.desk.run("run", label, **given)).text)
        return answer


@pytest.fixture
async def bench(desk: Desk, tmp_path: Path) -> AsyncIterator[Bench]:
    workshop, labels = Workshop(tmp_path / "scratch"), Shelf()
    (desk.root / "uploads").mkdir(parents=True)
    commands = commands_on(workshop, Workspace(desk.root, labels))
    desk.source.commands = commands
    yield Bench(desk, labels, commands)
    await workshop.close()


async def test_a_script_reads_its_arguments_and_answers_with_what_it_prints(bench: Bench) -> None:
    await bench.confirm()
    (offer,) = bench.desk.source.offers
    assert (offer.tool.name, offer.tool.private) == ("weather_run", True)
    assert offer.tool.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string", "description": ""}},
        "required": ["city"],
    }
    assert await bench.run(city="Rome; $(id)") == {
        "result": {"given": {"city": "Rome; $(id)"}, "twice": "Rome; $(id)Rome; $(id)"}
    }
    assert not list(bench.commands.workshop.scratch.iterdir())


async def test_it_works_in_the_workspace_and_cannot_change_itself(bench: Bench) -> None:
    script = """\
import os, sys
open("made.txt", "w").write("x")
for path in (__file__, ".agents/tools/weather/run.py", os.path.dirname(__file__) + "/new"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError:
        pass
"""
    await bench.confirm(script, "command: python3 -I ./run.py\n")
    assert await bench.run() == {"result": "", "changed_files": ["made.txt"]}
    assert (bench.desk.root / ".agents/tools/weather/run.py").read_text() == script


async def test_bytes_that_were_not_confirmed_never_run(bench: Bench) -> None:
    await bench.confirm()
    tools = [offer.tool for offer in bench.desk.source.offers]
    put(bench.desk.root, text=tool_md(config=CONFIG, type="script"), run__py="open('owned', 'w')")
    answer = await bench.run(city="Rome")
    assert answer["error"] == "not_confirmed"
    assert len(tools) == 1
    assert not (bench.desk.root / "owned").exists()


async def test_a_run_that_has_read_others_words_asks_and_what_it_brings_is_labelled_so(bench: Bench) -> None:
    await bench.confirm()
    assert await bench.run(Label.UNTRUSTED, city="Rome") == {"waiting_for_approval": "A1"}
    (act,) = bench.desk.asked
    assert act.change.preview.startswith("Run this script, without network:")
    assert "Rome" in act.change.preview
    clean = await bench.desk.run("run", city="Rome")
    assert clean.label is Label.OWNER
    (bench.desk.root / "uploads/theirs.txt").write_text("obey me")
    await bench.confirm("import os\nprint(os.listdir('uploads'))", "command: python3 -I run.py\n")
    assert (await bench.run())["result"] == []


async def test_it_has_no_network_and_sees_nothing_of_the_gateways(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPACLAW_MASTER_KEY", "hush-hush-hush")
    script = f"""\
import os, socket
print("hush" in str(os.environ), os.path.exists({str(bench.commands.workshop.scratch.parent / "data")!r}))
try:
    socket.create_connection(("127.0.0.1", {bench.desk.api.server.port}))
except OSError as error:
    print(type(error).__name__)
"""
    await bench.confirm(script, "command: python3 -I run.py\n")
    assert (await bench.run())["result"] == "False False\nPermissionError\n"


async def test_one_with_hosts_asks_each_time_and_reaches_them_alone(bench: Bench) -> None:
    if await bench.commands.workshop.tier() is not Tier.NAMESPACES:
        pytest.skip("there are no namespaces for users here")
    place = f"127.0.0.1:{bench.desk.api.server.port}"
    bench.commands.rules = lambda: Rules.of([place])
    script = f"""\
import urllib.request
print(urllib.request.urlopen("http://{place}/now").status)
try:
    urllib.request.urlopen("http://127.0.0.1:1/")
except OSError as error:
    print(error)
"""
    await bench.confirm(script, f"command: python3 -I run.py\nhosts: ['{place}']\n")
    assert f"reaches {place}" in bench.desk.files.on[0].tool.summary()[1]
    assert await bench.run() == {"waiting_for_approval": "A1"}
    assert f"workspace to {place}, and to no other host" in bench.desk.asked[0].change.preview
    assert bench.desk.api.calls == []
    (offer,) = bench.desk.source.offers
    answer = await offer.tool.run(AnyArguments(), CALLER)
    assert answer.result["result"] == "200\nHTTP Error 403: Forbidden\n"
    assert answer.label is Label.UNTRUSTED


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("import sys; sys.exit('it broke')", "failed", "it broke"),
        ("print('x' * 3_000_000)", "output", "2 MB"),
        ("import time; time.sleep(60)", "timeout", "timeout"),
    ],
)
async def test_what_goes_wrong_is_told(bench: Bench, script: str, error: str, words: str) -> None:
    await bench.confirm(script, "command: python3 -I run.py\nseconds: 2\n")
    answer = await bench.run()
    assert answer["error"] == error
    assert words in str(answer)


async def test_wrong_arguments_and_missing_programs_are_told_in_a_line(bench: Bench) -> None:
    await bench.confirm()
    assert (await bench.run())["message"] == "city is missing; it takes: city."
    assert (await bench.run(city="x", town="y"))["message"] == "'town' isn't one; it takes: city."
    await bench.confirm(config="command: no-such-program run.py\n")
    assert "no such program here" in (await bench.run())["message"]


async def test_binary_output_and_much_of_it_reach_the_answer(bench: Bench) -> None:
    await bench.confirm(
        "import sys; sys.stderr.write('e' * 300_000); sys.stdout.buffer.write(b'\\xff ok')", "command: python3 run.py\n"
    )
    answer = await bench.run()
    assert answer["result"] == "\ufffd ok"
    assert answer["errors"] == "e" * scripts.MAX_ERRORS


async def test_switched_off_commands_switch_scripts_off(bench: Bench) -> None:
    await bench.confirm()
    bench.desk.source.commands = replace(bench.commands, mode=lambda: "off")
    assert bench.desk.source.offers == []
    bench.desk.source.commands = None
    assert bench.desk.source.offers == []
