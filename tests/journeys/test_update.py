"""`supaclaw update` on an installation as install.sh makes it, from a package index on this machine."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from zipfile import ZipFile

import pytest

from gateway.config.data.instance import running_pid
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, ROOT, Ended, GatewayProcess, configured

pytestmark = pytest.mark.thorough

NEWER = "99.0.0"
CURRENT = version("supaclaw")
RUNS = f"""import os, sys
if {{broken}} in sys.argv[1:]:
    sys.exit("supaclaw: the new version is broken")
python = {sys.executable!r}
os.chdir({str(ROOT)!r})
command = ["-c", {{spoils}}] if {{spoils}} and "up" in sys.argv[1:] else ["-m", "gateway", *sys.argv[1:]]
os.execv(python, [python, *command])
"""
"""A newer version: this one's program, by another way. `broken` is the command that fails."""
SPOILS = """
import asyncio, os, sys
from pathlib import Path
from gateway.store.connection.pool import Database
from gateway.store.embedded.postgres import EmbeddedPostgres

async def main():
    server = EmbeddedPostgres(Path(os.environ["SUPACLAW_DATA"]))
    async with await Database.connect(await server.start()) as database, database.connection() as conn:
        columns, next_one = "number, name, sha256, compatible_from", "max(number) + 1"
        row = f"select {next_one}, 'later', '', {next_one} from supaclaw.migrations"
        await conn.execute(f"insert into supaclaw.migrations ({columns}) {row}")

asyncio.run(main())
sys.exit("it changed the schema, and broke")
"""


def add_wheel(index: Path, version: str = NEWER, broken: str | None = None, spoils: str = "") -> None:
    """Put a version into the index."""
    name, info = f"supaclaw-{version}-py3-none-any.whl", f"supaclaw-{version}.dist-info"
    folder = index / "supaclaw"
    with ZipFile(folder / name, "w") as wheel:
        wheel.writestr("gateway/__init__.py", "")
        wheel.writestr("gateway/__main__.py", RUNS.format(broken=repr(broken), spoils=repr(spoils)))
        wheel.writestr("gateway/requirements.txt", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: supaclaw\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    digest = sha256((folder / name).read_bytes()).hexdigest()
    with (folder / "index.html").open("a") as page:
        page.write(f'<a href="{name}#sha256={digest}">{name}</a>\n')


@dataclass
class Installed:
    """An installation as install.sh makes it, with a gateway that runs; `index` is the page of the registry."""

    gateway: GatewayProcess
    home: Path
    index: Path
    environ: dict[str, str]
    python: Path

    async def supaclaw(self, *arguments: str) -> Ended:
        command = await asyncio.create_subprocess_exec(
            *(self.python, "-P", "-m", "gateway", *arguments),
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told, _ = await asyncio.wait_for(command.communicate(), 120)
        return Ended(command.returncode or 0, told.decode())

    @property
    def in_use(self) -> str:
        return (self.home / ".local" / "bin" / "supaclaw").resolve().parts[-3]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """An index of packages, and its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    (folder := tmp_path / "index" / "supaclaw").mkdir(parents=True)
    (folder / "index.html").write_text("")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder.parent))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        add_wheel(folder.parent, CURRENT)
        yield folder.parent, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def lay_out(home: Path) -> Path:
    """A folder of this version as install.sh makes it; returns its Python."""
    library = home / ".local" / "lib" / "supaclaw"
    place = library / CURRENT
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    packages = next((place / "lib").iterdir()) / "site-packages"
    ours = next(Path(sys.prefix, "lib").glob("python3*")) / "site-packages"
    for entry in [*ours.iterdir(), *(ROOT / top for top in ("channels", "integrations", "workspace_template"))]:
        if entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "gateway", packages / "gateway")
    (place / "bin" / "supaclaw").touch()
    uv = shutil.which("uv") or ROOT / ".uv" / "bin" / "uv"
    (library / "uv").symlink_to(Path(uv).resolve())
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "supaclaw").symlink_to(place / "bin" / "supaclaw")
    return place / "bin" / "python"


@pytest.fixture
def home() -> Iterator[Path]:
    """Where Postgres' own user may enter, if this is root."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
async def installed(
    embedded: GatewayProcess, home: Path, served: tuple[Path, str], telegram: FakeTelegram, models: FakeModels
) -> AsyncIterator[Installed]:
    index, address = served
    python = await asyncio.to_thread(lay_out, home)
    embedded.configure(configured(telegram, models))
    await embedded.start()
    places = {"SUPACLAW_DATA": str(embedded.data), "SUPACLAW_CONFIG": str(embedded.home / "config.json")}
    with socket.create_server(("127.0.0.1", 0)) as free:
        places["SUPACLAW_PORT"] = str(free.getsockname()[1])
    mine = {name: value for name, value in os.environ.items() if not name.startswith("SUPACLAW_")}
    environ = mine | embedded.environ | places | {"HOME": str(home), "UV_DEFAULT_INDEX": address, "UV_NO_CACHE": "1"}
    found = Installed(embedded, home, index, environ, python)
    yield found
    await found.supaclaw("down")


async def answered(telegram: FakeTelegram, number: int) -> None:
    telegram.say(f"hello mk{number}x", OWNER)
    await telegram.wait_for(lambda tg: any(f"fin{number}x" in sent.text for sent in tg.sent), 60)


async def test_a_newer_version_is_tried_on_a_copy_and_takes_over(installed: Installed, telegram: FakeTelegram) -> None:
    await answered(telegram, 1)
    pid = running_pid(installed.gateway.data)
    unreachable = {**installed.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:1"}
    offline = await replace(installed, environ=unreachable).supaclaw("update")
    assert (offline.code, offline.told.count("\n"), running_pid(installed.gateway.data)) == (1, 1, pid), offline.told
    assert (await installed.supaclaw("update")).told == "this is the newest version\n"
    add_wheel(installed.index)
    asked = await installed.supaclaw("update", "--check")
    assert (asked.code, asked.told) == (0, f"{NEWER} is available; `supaclaw update` installs it\n")

    done = await installed.supaclaw("update")

    assert done.code == 0, done.told
    assert done.told.endswith(f"updated to {NEWER}, which runs\n")
    assert installed.in_use == NEWER
    await answered(telegram, 2)
    assert not (installed.gateway.data / "postgres.before").exists()


async def test_one_that_fails_on_the_copy_changes_nothing(installed: Installed, telegram: FakeTelegram) -> None:
    add_wheel(installed.index, broken="chat")
    pid = running_pid(installed.gateway.data)

    done = await installed.supaclaw("update")

    assert (done.code, done.told.splitlines()[-1]) == (1, "supaclaw: the new version is broken; nothing has changed")
    assert (installed.in_use, running_pid(installed.gateway.data)) == (CURRENT, pid)
    await answered(telegram, 1)


async def test_one_that_does_not_start_gives_way_to_the_version_before_and_its_database(
    installed: Installed, telegram: FakeTelegram
) -> None:
    add_wheel(installed.index, spoils=SPOILS)
    await answered(telegram, 1)

    done = await installed.supaclaw("update")

    assert done.code == 1
    assert done.told.endswith("; the version before runs again, and nothing has changed\n"), done.told
    assert installed.in_use == CURRENT
    await answered(telegram, 2)
