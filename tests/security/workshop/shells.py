"""What hostile scripts try in the shell on virtual files, through the tool, and what code that took it over would."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.background.cpu.virtual_shells import VirtualShells
from gateway.domain.conversation.tools import ToolFailed
from gateway.sandbox.command import Tier
from gateway.sandbox.jail import landlock
from tests.net.servers import page, redirect, serving, site
from tests.security import attacks as code
from tests.security.test_reader_jail import FILES, OTHERS
from tests.security.workshop.attacks import SECRET, Ground, ground, unchangeable
from tests.tools.test_bash import Desk

MOST_SECONDS = 60
"""Of one script, on a busy machine; its own limit is half of it."""
MOST_SHOWN = 40_000
"""Characters that an answer may have, of output and errors together."""
LONG = {"a large power", "a slow pattern"}

ESCAPES = {
    "read a secret": "cat {data}/secret.key; head {data}/secret.key; base64 {data}/secret.key",
    "read it by a redirection": "read x < {data}/secret.key; echo $x; echo $(<{data}/secret.key)",
    "read it by a descriptor": "exec 3< {data}/secret.key; cat <&3",
    "read it as a script": "source {data}/secret.key; . {data}/secret.key",
    "read it by substitution": "cat <(cat {data}/secret.key); mapfile a < {data}/secret.key; echo ${{a[0]}}",
    "read it by sed": "echo x > f; sed 'r {data}/secret.key' f; sed -n 'R {data}/secret.key' f",
    "read it through a link": "ln -s {data}/secret.key s; cat s; ln {data}/secret.key h; cat h",
    "read it by copying": "cp {data}/secret.key . ; cat secret.key; "
    "cp -r {data} d; cat d/*; mv {data}/secret.key m; cat m",
    "read it by searching": "grep -r TOP {data}; grep -f {data}/secret.key {data}/*; find {data} -name '*.key'",
    "read it by a pattern": "echo {data}/*; cat {data}/*.key; cat /*/*/*.key",
    "read it from the way up": "cat ../../../..{data}/secret.key; cd ..; cat data/secret.key",
    "read it by SQL": "sqlite3 :memory: \"attach '{data}/secret.key' as x; select * from x.t\"; "
    "sqlite3 {data}/db .dump",
    "read it by Python": "python3 -c 'print(open(\"{data}/secret.key\").read())'; python {data}/secret.key",
    "read it by Node": "js-exec -c 'fs.readFileSync(1)'; node -e 1; perl -e 1; ruby -e 1; php -r 1; {data}/secret.key",
    "read it by other commands": "rg TOP {data}; awk 1 {data}/secret.key; jq -R . {data}/secret.key; tar cf - {data}; "
    "yq . {data}/secret.key; xan cat rows {data}/secret.key; od {data}/secret.key; strings {data}/secret.key",
    "read it by another name of a command": "command -p cat {data}/secret.key; builtin cat {data}/secret.key; "
    "/bin/cat {data}/secret.key; bash -c 'cat {data}/secret.key'; xargs cat <<< {data}/secret.key; "
    "eval cat {data}/secret.key",
    "read it by sorting": "sort {data}/secret.key; sort -o x {data}/secret.key; cat x; tac {data}/secret.key",
    "its environment": "env; printenv; cat /proc/self/environ; echo $API_KEY; export -p; declare -p; set",
    "the gateway's environment": "cat /proc/{pid}/environ; cat /proc/{pid}/root{data}/secret.key",
    "write outside": "echo x > {base}/evil; echo x >> {config}; tee {config} <<< x; "
    "sed -i s/a/b/ {config}; touch {base}/evil",
    "write by SQL": "sqlite3 {base}/evil 'create table t(a)'; sqlite3 :memory: \"vacuum into '{base}/evil'\"",
    "write by other commands": "split x {base}/evil; curl -o {base}/evil {url}/v1/data; cp /dev/null {config}; "
    "mkdir -p {base}/evil; mv x {config}; printf x > {base}/evil; sort -o {base}/evil x; sed 'w {base}/evil' x",
    "delete": "rm -rf {config} {data} {base} / ~ .. ; find {base} -delete; mv {config} /tmp/x",
    "write to the system's temporary folder": "echo x > /tmp/evil_jail",
    "signals": "kill -9 $PPID; kill -9 -1; kill -9 {pid}; exec kill -9 {pid}; trap 'kill {pid}' EXIT",
    "Python behind a subscript": "a=(1); echo ${{a[().__class__.__base__.__subclasses__()]}}; "
    "echo ${{a[__import__('os').system('touch {base}/evil')]}}; echo ${{a:[].__class__}}",
    "Python behind arithmetic": "echo $((__import__('os').getppid())); let 'x=open(\"{data}/secret.key\")'; "
    "((x=[].__class__)); declare -i y=\"open('{data}/secret.key')\"; echo $x $y",
    "Python in letters that Python knows": "a=(1); echo ${{a[﹍﹍ⅽⅼ]}}; echo ${{a[℘.℮]}}",
    "formats that read objects": "printf '%s{{0.__class__}}' x; echo '{{0.__init__.__globals__}}'; printf '%(%s)T' -1; "
    "TZ=../../..{data}/secret.key printf '%(%c)T'",
    "a TCP device": "echo x > /dev/tcp/127.0.0.1/{tcp}; exec 3<>/dev/tcp/127.0.0.1/{tcp}; "
    "cat < /dev/udp/127.0.0.1/{udp}",
    "addresses that nobody named": "curl -s {url}/v1/data; curl {url}/secret; curl -s file://{data}/secret.key; "
    "curl http://169.254.169.254/; curl --proxy {url} {url}/secret; curl -K x; wget {url}/secret",
}  # fmt: skip

BOMBS = {
    "a loop": "while true; do :; done",
    "memory": "x=aaaaaaaaaa; while true; do x=$x$x; done",
    "recursion": "f() {{ f; }}; f",
    "a large sequence": "seq 100000000 > big",
    "a large range": "for i in {{1..100000000}}; do echo $i; done",
    "a large power": "echo $((9**9**9**9)); a=(1); echo ${{a[9**9**9]}}; echo $((1<<9**9))",
    "a large repetition": "printf '%1000000000s' x; printf 'x%.0s' {{1..99999999}}",
    "a slow pattern": "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab | grep -E '(a+)+$'; "
    "[[ aaaaaaaaaaaaaaaaaaaab =~ (a+)+$ ]]",
    "files": "for i in {{1..99999}}; do echo $i > f$i; done",
    "a file that grows": "echo x > f; while true; do cat f f > g; cat g g > f; done",
    "output": "while true; do echo " + "a" * 80 + "; done",
    "nesting": "echo " + "$(echo " * 3000 + ")" * 3000,
    "sleep": "sleep 1000; read x; cat; wait",
    "nonsense": "if then fi ( \x00 \ufffe ${{ ${{x@#%^",
}

IMPORTS = {
    "a file outside": "../data/secret.key", "a full path": "{data}/secret.key", "its configuration": "../config.json",
    "a link": "link.key", "a link to a folder": "linked/secret.key", "a pattern through a link": "linked/*",
    "a pattern of links": "*.key", "a pattern that climbs": "*/../../data/*", "the process": "/proc/self/environ",
    "a name with a null": "a\0b", "a device": "/dev/zero", "a pipe": "pipe",
}  # fmt: skip
SAVES = {
    "outside": "../evil", "a full path": "{base}/evil", "the instructions": "AGENTS.md",
    "the instructions, otherwise": "./work/../AGENTS.md",
    "a journal": "sessions/today.md", "a skill": ".agents/skills/x/SKILL.md",
    "through a link": "link.key", "through a linked folder": "linked/evil", "locked text": "rules/locked.md",
    "the process": "/proc/self/mem", "a folder": "work",
}  # fmt: skip
PAGES = {
    "beside what is allowed": "{url}/secret", "by climbing": "{url}/v1/../secret",
    "by hidden climbing": "{url}/v1/%2e%2e/secret",
    "by a longer name": "{url}/v1x", "by a redirection": "{url}/v1/away", "a file": "file://{data}/secret.key",
    "another host": "http://169.254.169.254/latest", "a user before the host": "{url}@127.0.0.1:{tcp}/v1/data",
    "another port": "http://127.0.0.1:{tcp}/v1/data",
}  # fmt: skip

Row = tuple[str, bool, str]


@dataclass
class Bench:
    place: Ground
    desk: Desk
    values: dict[str, object]

    async def run(self, script: str, **more: object) -> tuple[str, bool]:
        """What is answered, and whether it ran."""
        try:
            return json.dumps(await self.desk.run(script, **more), ensure_ascii=False), True
        except ToolFailed as failure:
            return str(failure), False
        except ValueError as error:
            return f"refused: {error}", False

    async def attempt(self, name: str, script: str, **more: object) -> Row:
        """One of them, and whether all is as it was and nothing was told."""
        before = state(self)
        answer, _ = await self.run(script, **more)
        return name, held(self, answer, before), answer

    def filled(self, text: str) -> str:
        return text.format(**self.values)


@asynccontextmanager
async def bench(base: Path) -> AsyncIterator[Bench]:
    pages = {"/v1/data": page(b"7\n"), "/v1/away": redirect("/landed")}
    pages |= dict.fromkeys(("/secret", "/landed", "/v1x"), page(SECRET.encode()))
    async with ground(base, Tier.NAMESPACES, landlock.abi()) as place, serving(site(pages)) as server:
        (place.workspace / "linked").symlink_to(place.data)
        (place.workspace / "link.key").symlink_to(place.data / "secret.key")
        shells = VirtualShells(base / "shells")
        values: dict[str, object] = {
            "base": base, "data": place.data, "config": place.config, "pid": place.victim.pid, "url": server.url,
            "tcp": place.tcp.getsockname()[1], "udp": place.udp.getsockname()[1],
        }  # fmt: skip
        yield Bench(place, Desk(place.workspace, shells, server, (f"{server.url}/v1",)), values)
        await shells.close()


async def attack(base: Path, *, short: bool) -> list[Row]:
    """Each attempt: its name, whether the jail held, and what was answered."""
    rows: list[Row] = []
    async with bench(base) as at:
        await _works(at, rows)
        for name, script in ESCAPES.items():
            rows.append(await at.attempt(f"bash: {name}", at.filled(script)))
        for name, path in IMPORTS.items():
            rows.append(await at.attempt(f"bash imports: {name}", "cat * */*", files=[at.filled(path)]))
        for name, path in SAVES.items():
            target = at.filled(path)
            script = f"mkdir -p work sessions rules linked .agents/skills/x; echo evil > {target.replace('..', 'x')}"
            rows.append(await at.attempt(f"bash saves: {name}", script, save=[target]))
        for name, url in PAGES.items():
            script = f"curl -s {at.filled(url)}"
            rows.append(await at.attempt(f"bash fetches: {name}", script, urls=[at.filled(url)]))
        for name, script in BOMBS.items():
            if not short or name not in LONG:
                rows.append(await _bomb(at, name, script))
        await _taken_over(at, rows)
    return rows


async def _bomb(at: Bench, name: str, script: str) -> Row:
    began = time.monotonic()
    title, held, answer = await at.attempt(f"bash limits: {name}", script)
    passed = time.monotonic() - began
    again, _ = await at.run("echo alive")
    return title, held and len(answer) < MOST_SHOWN and "alive" in again and passed < MOST_SECONDS, answer


async def _works(at: Bench, rows: list[Row]) -> None:
    (at.place.workspace / "work/words").write_text("b\na\n")
    answer, ran = await at.run("sort work/words > sorted", files=["work/*"], save=["sorted"])
    done = ran and (at.place.workspace / "sorted").read_text() == "a\nb\n"
    rows.append(("works: bash sorts a file and saves it", done, answer))
    url = f"{at.values['url']}/v1/data"
    answer, ran = await at.run(f"curl -s {url}", urls=[url])
    rows.append(("works: bash reads an address that is allowed", ran and '"7\\n"' in answer, answer))


async def _taken_over(at: Bench, rows: list[Row]) -> None:
    """Code in the shell's own process, with all of Python."""
    source, target = at.place.base / "taken/source", at.place.base / "taken/target"
    for folder in (source, target):
        folder.mkdir(parents=True)
    outside = at.place.data / "secret.key"
    aims = {
        **{name: str(at.values[name]) for name in ("pid", "tcp", "udp", "data")},
        "unix": str(at.place.unix), "outside": str(outside), "beside": str(at.place.base / "evil"),
        "out|in": f"{outside}|{target / 'new'}", "in": str(target / "new"),
    }  # fmt: skip
    for name, place in (*FILES, *OTHERS):
        aim = aims.get(place, place.format(pid=at.place.victim.pid, outside=outside))
        arguments, before = (name, aim, str(source), str(target)), state(at)
        answer = await at.desk.shells.cpu.run(code.in_shell, *arguments, seconds=60, memory=4 << 30)
        refused = isinstance(answer, dict) and "refused" in answer
        rows.append(
            (f"bash taken over: {name} {place}".rstrip(), refused and held(at, str(answer), before), str(answer))
        )


def state(at: Bench) -> object:
    """What no script may have changed, or reached."""
    at.place.tcp.setblocking(False)
    try:
        at.place.tcp.accept()
        reached = True
    except BlockingIOError:
        reached = False
    asked = [each.path for each in at.desk.server.asked if each.path not in ("/v1/away", "/landed")]
    return unchangeable(at.place), at.place.victim.poll(), reached, asked


def held(at: Bench, answer: str, before: object) -> bool:
    return SECRET not in answer and "root:x:" not in answer and state(at) == before


async def main(base: str, *, short: bool) -> None:
    rows = await attack(Path(base), short=short)
    sys.stdout.write(json.dumps([(name, kept, answer[:200]) for name, kept, answer in rows]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], short=sys.argv[2:] == ["short"]))
