"""Groups of the kernel: where one can be made it counts everything; with folders that stand for it elsewhere."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.sandbox.command import Limits
from gateway.sandbox.jail.usage import ControlGroup, take_group

LIMITS = Limits(memory=64 << 20, processes=5)
VERSIONS = {
    "1": ("4:memory:/of/us\n8:pids:/\n0::/\n", ("memory/of/us", "pids"), ("tasks", "memory.oom_control")),
    "2": ("0::/us/gateway\n", ("us",), ("cgroup.procs", "memory.events")),
    "2, alone in a container": ("0::/\n", ("",), ("cgroup.procs", "memory.events")),
}
BOUNDS = {"1": "memory.limit_in_bytes", "2": "memory.max", "2, alone in a container": "memory.max"}


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_are_set_and_each_group_has_one_user(tmp_path: Path, version: str) -> None:
    own, parents, files = VERSIONS[version]
    (tmp_path / "own").write_text(own)
    for slot in range(2):
        for parent in parents:
            folder = tmp_path / "root" / parent / f"supaclaw-{slot}"
            folder.mkdir(parents=True)
            for name in (*files, BOUNDS[version]):
                (folder / name).write_text("oom_kill 3\n")

    first, second = (take_group(LIMITS, tmp_path / "root", tmp_path / "own") for _ in range(2))
    assert first is not None
    assert second is not None
    for slot in range(2):
        memory, processes = (tmp_path / "root" / each / f"supaclaw-{slot}" for each in (parents[0], parents[-1]))
        assert (memory / BOUNDS[version]).read_text() == str(64 << 20)
        assert (processes / "pids.max").read_text() == "5"
    assert not first.lacked_memory()
    (tmp_path / "root" / parents[0] / "supaclaw-0" / files[1]).write_text("low 0\noom_kill 4\n")
    assert (first.lacked_memory(), second.lacked_memory()) == (True, False)

    _close(first)
    again = take_group(LIMITS, tmp_path / "root", tmp_path / "own")
    assert again is not None
    assert not again.lacked_memory()
    _close(again)
    _close(second)


def test_there_is_none_where_none_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/us/gateway\n")
    assert take_group(LIMITS, tmp_path / "root", tmp_path / "own") is None
    assert take_group(LIMITS, tmp_path, tmp_path / "missing") is None


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    taken = take_group(LIMITS)
    if taken is None:
        pytest.skip("no group can be made here")
    yield taken
    _close(taken)


def test_the_kernel_ends_what_takes_too_much(group: ControlGroup) -> None:
    if not (child := os.fork()):
        group.join()
        kept = [bytearray(b"x" * (1 << 20)) for _ in range(200)]
        os._exit(len(kept) % 7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert group.lacked_memory()


def test_the_kernel_starts_no_process_too_many(group: ControlGroup) -> None:
    (reads, writes), (waits, ends) = os.pipe(), os.pipe()
    if not (child := os.fork()):
        os.close(ends)
        group.join()
        for _ in range(20):
            try:
                if not os.fork():
                    os.read(waits, 1)
                    os._exit(0)
            except BlockingIOError:
                os.write(writes, b"-")
            else:
                os.write(writes, b"+")
        os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    started, held = os.read(reads, 100), group.holds_any()
    for each in (reads, waits, ends):  # first: the processes end with it, and keep what this one has open until then
        os.close(each)
    assert 1 <= started.count(b"+") <= LIMITS.processes - 1, "fewer while processes of its last user are going"
    assert b"-" in started
    assert held


def _close(group: ControlGroup) -> None:
    for each in (group.lock, group.events, *group.members):
        os.close(each)
