"""Finding 20: whoever takes the file reader over holds one file, one output folder, and nothing else."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from gateway.background.cpu.executor import Cpu, CpuJobFailed
from gateway.domain.json import Json
from gateway.ingest import reading
from gateway.ingest.output import MAX_MEMORY_BYTES
from gateway.sandbox.jail import landlock, seccomp
from tests.background import cpu_jobs
from tests.fakes.eventually import eventually
from tests.ingest.samples import Sample, samples
from tests.security import attacks

SECONDS = 180.0
SECRET = "sk-the-gateways-own"
needs_landlock = pytest.mark.skipif(landlock.abi() < 3, reason="this kernel has no Landlock of version 3 or newer")
needs_seccomp = pytest.mark.skipif(not seccomp.supported(), reason="this kernel does not filter system calls")


class Site(NamedTuple):
    """A gateway's folders, its process, its sockets."""

    source: Path
    target: Path
    outside: Path
    """Somebody else's upload."""
    pid: int
    tcp: int
    udp: int
    unix: Path

    def at(self, place: str) -> str:
        """What an attack is aimed at."""
        new = self.target / "new"
        return {
            "pid": str(self.pid),
            "tcp": str(self.tcp),
            "udp": str(self.udp),
            "unix": str(self.unix),
            "outside": str(self.outside),
            "beside": str(self.source.with_name("planted")),
            "data": str(self.outside.parents[1]),
            "out|in": f"{self.outside}|{new}",
            "in": str(new),
        }.get(place, place.format(pid=self.pid, outside=self.outside, data=self.outside.parents[1]))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder, others = tmp_path / "data" / "ingest" / "a", tmp_path / "data" / "uploads"
    for each in (folder / "read", others):
        each.mkdir(parents=True)
    (folder / "source").write_text("the file")
    (others / "letter.txt").write_text(SECRET)
    with ExitStack() as stack:
        gateway = subprocess.Popen(["sleep", "600"], env={**os.environ, "OPENAI_API_KEY": SECRET})
        stack.callback(gateway.wait)
        stack.callback(gateway.kill)
        tcp, udp, unix = (
            stack.enter_context(socket.socket(*kind))
            for kind in ((socket.AF_INET,), (socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_UNIX,))
        )
        for each in (tcp, udp):
            each.bind(("127.0.0.1", 0))
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))) / "db"  # its name may not be long
        unix.bind(str(path))
        for each in (tcp, unix):
            each.listen()
        ports = tcp.getsockname()[1], udp.getsockname()[1]
        yield Site(folder / "source", folder / "read", others / "letter.txt", gateway.pid, *ports, path)


@pytest.fixture
async def cpu() -> AsyncIterator[Cpu]:
    cpu = Cpu()
    yield cpu
    await cpu.close()


async def result(cpu: Cpu, job: object, name: str, at: str, site: Site) -> Json:
    assert callable(job)
    return await cpu.run(job, name, at, str(site.source), str(site.target), seconds=SECONDS)


FILES = [
    ("read", "outside"),
    ("read", "/etc/passwd"),
    ("read", "/proc/{pid}/environ"),
    ("read", "/proc/{pid}/root{outside}"),
    ("read", "/proc/self/environ"),
    ("listing", "data"),
    ("listing", "/etc"),
    ("listing", "/proc"),
    ("write", "beside"),
    ("append", "outside"),
    ("truncate", "outside"),
    ("chmod", "outside"),
    ("backdate", "outside"),
    ("hard_link", "out|in"),
    ("symbolic_link", "out|in"),
    ("take_along", "out|in"),
    ("remove", "outside"),
    ("pipe_with_a_name", "in"),
    ("folder", "in"),
    ("watch_names", "data"),
]
OTHERS = [
    ("tcp", "tcp"),
    ("udp", "udp"),
    ("tcp6", ""),
    ("unix", "unix"),
    ("unix_datagrams", ""),
    ("netlink", ""),
    ("ask_whether_alive", "pid"),
    ("kill_thread", "pid"),
    ("hold_process", "pid"),
    ("signal_by_file", "pid"),
    ("change_limits", "pid"),
    ("slow_down", "pid"),
    ("trace", "pid"),
    ("outlive", ""),
    ("program", ""),
    ("fork", ""),
    ("memory_without_address", ""),
]


@needs_landlock
@needs_seccomp
@pytest.mark.parametrize(("attack", "place"), FILES)
async def test_no_file_but_its_own_is_within_reach(cpu: Cpu, site: Site, attack: str, place: str) -> None:
    answer = await result(cpu, attacks.jailed, attack, site.at(place), site)
    assert answer in [{"refused": "PermissionError"}, {"refused": "OSError"}]
    assert site.outside.read_text() == SECRET
    assert sorted(each.name for each in site.target.parent.rglob("*")) == ["read", "source"]


@needs_seccomp
@pytest.mark.parametrize(("attack", "place"), OTHERS)
async def test_no_socket_process_or_program_is_within_reach(cpu: Cpu, site: Site, attack: str, place: str) -> None:
    assert await result(cpu, attacks.jailed, attack, site.at(place), site) == {"refused": "PermissionError"}


@pytest.mark.thorough
@pytest.mark.parametrize(("attack", "place"), [*FILES, *OTHERS])
async def test_without_the_jail_every_one_of_these_works(site: Site, attack: str, place: str) -> None:
    if attack == "trace" and os.getuid():
        pytest.skip("only root may trace a process that is not its child")
    cpu = Cpu()
    try:
        answer = await result(cpu, attacks.free, attack, site.at(place), site)
    finally:
        await cpu.close()
    assert isinstance(answer, dict)
    assert "got" in answer


@needs_landlock
@needs_seccomp
async def test_it_cannot_become_another_program_or_type_into_a_terminal(cpu: Cpu, site: Site) -> None:
    for attack in ("replace_itself", "type_into_terminal"):
        answer = await result(cpu, attacks.jailed, attack, "", site)
        assert answer in [{"refused": "PermissionError"}, {"refused": "OSError"}]


async def test_it_is_given_no_secret_and_no_open_file_of_the_gateway(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", f"postgresql://u:{SECRET}@h/d")
    cpu = Cpu()
    try:
        assert SECRET not in str(await result(cpu, attacks.jailed, "environment", "", site))
        only_the_answer_and_nothing = 4
        assert await result(cpu, attacks.jailed, "descriptors", "", site) == {"got": only_the_answer_and_nothing}
    finally:
        await cpu.close()


async def test_it_reads_its_file_and_fills_its_folder(cpu: Cpu, site: Site) -> None:
    assert await result(cpu, attacks.jailed, "read", str(site.source), site) == {"got": "the file"}
    assert await result(cpu, attacks.jailed, "write", site.at("in"), site) == {"got": "written"}
    assert (site.target / "new").read_text() == "evil"


BOMBS = {
    "crash": r"signal 11",
    "hog": "needs more memory than it may take",
    "flood": "answered with more than is taken",
    "garble": "answered with nonsense",
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_bomb_ends_its_own_child_alone(cpu: Cpu, site: Site, bomb: str) -> None:
    before = await cpu.run(cpu_jobs.process_id, seconds=SECONDS)
    with pytest.raises(CpuJobFailed, match=BOMBS[bomb]):
        await result(cpu, attacks.jailed, bomb, "", site)
    assert await result(cpu, attacks.jailed, "read", str(site.source), site) == {"got": "the file"}
    assert await cpu.run(cpu_jobs.process_id, seconds=SECONDS) == before


async def test_what_the_parent_holds_is_not_what_the_child_takes(cpu: Cpu, site: Site) -> None:
    of = str(site.source), str(site.target)
    taken = await cpu.run(attacks.beside_much, "take_half", "", *of, seconds=SECONDS, memory=2 * MAX_MEMORY_BYTES)
    assert taken == {"got": MAX_MEMORY_BYTES // 2}
    with pytest.raises(CpuJobFailed, match=BOMBS["hog"]):
        await cpu.run(attacks.beside_much, "hog", "", *of, seconds=SECONDS, memory=2 * MAX_MEMORY_BYTES)


@pytest.mark.parametrize("bomb", ["hang", "spin"])
async def test_what_takes_too_long_is_ended(cpu: Cpu, site: Site, bomb: str) -> None:
    before = await cpu.run(cpu_jobs.process_id, seconds=SECONDS)
    with pytest.raises(CpuJobFailed, match=r"took longer than 0.5 seconds"):
        await result(cpu, attacks.limited, bomb, "", site)
    assert await cpu.run(cpu_jobs.process_id, seconds=SECONDS) == before


async def test_the_disk_is_not_filled(cpu: Cpu, site: Site) -> None:
    with pytest.raises(CpuJobFailed, match="wrote more than it may"):
        await result(cpu, attacks.jailed, "fill_disk", str(site.target), site)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_the_child_does_not_outlive_the_process_that_waits_for_it(site: Site) -> None:
    cpu = Cpu()
    with pytest.raises(CpuJobFailed, match="took longer"):
        await cpu.run(attacks.jailed, "mark_and_hang", str(site.target / "mark"), *map(str, site[:2]), seconds=10)
    pid = int((site.target / "mark").read_text())
    await eventually(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize("sample", [each for each in samples() if each.words], ids=lambda sample: sample.name)
async def test_every_kind_of_file_is_read_in_the_jail(cpu: Cpu, site: Site, sample: Sample) -> None:
    site.source.write_bytes(sample.content)
    answer = await cpu.run(
        reading.read, str(site.source), str(site.target), sample.name, "application/octet-stream", seconds=SECONDS
    )
    assert isinstance(answer, dict)
    assert (answer["kind"], answer["problem"]) == (sample.kind, "")
    text = (site.target / "text.txt").read_text()
    assert [word for word in sample.words if word not in text] == []
