"""What code that took over the file reader would try; the CPU process imports this and nothing of pytest."""

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gateway.domain.json import Json
from gateway.ingest.output import MAX_MEMORY_BYTES, MAX_OUTPUT_BYTES
from gateway.ingest.reading import in_jail
from gateway.sandbox.child import Jail, run_in_jail
from gateway.sandbox.virtual import shell

Attack = Callable[[str], Json]


def jailed(name: str, at: str, source: str, target: str) -> Json:
    return in_jail(partial(attempt, name, at), source, target)


def in_shell(name: str, at: str, source: str, target: str) -> Json:
    """Where the scripts of bash run."""
    return run_in_jail(shell.shell_jail(source, target), partial(attempt, name, at))


def limited(name: str, at: str, source: str, target: str) -> Json:
    """In a jail of half a second."""
    return run_in_jail(Jail((source,), target, MAX_MEMORY_BYTES, 0.5, MAX_OUTPUT_BYTES), partial(attempt, name, at))


def beside_much(name: str, at: str, source: str, target: str) -> Json:
    """In the jail, with a parent that holds as much address space as the child may take."""
    with mmap.mmap(-1, MAX_MEMORY_BYTES, prot=mmap.PROT_READ):
        return jailed(name, at, source, target)


def free(name: str, at: str, *_: str) -> Json:
    """Without the jail, to see that the attack is one."""
    return attempt(name, at)


def attempt(name: str, at: str) -> Json:
    """What it got hold of, or how it was refused."""
    attack: Attack = globals()[name]
    try:
        return {"got": attack(at)}
    except OSError as error:
        return {"refused": type(error).__name__}


def read(path: str) -> str:
    return Path(path).read_text(errors="replace")


def listing(path: str) -> Json:
    return sorted(os.listdir(path))


def write(path: str) -> str:
    Path(path).write_text("evil")
    return "written"


def append(path: str) -> str:
    with open(path, "a") as file:
        file.write("evil")
    return "appended"


def truncate(path: str) -> str:
    os.truncate(path, 0)
    return "emptied"


def remove(path: str) -> str:
    os.unlink(path)
    return "removed"


def chmod(path: str) -> str:
    os.chmod(path, 0o777)
    return "opened"


def backdate(path: str) -> str:
    os.utime(path, (0, 0))
    return "changed"


def take_along(paths: str) -> str:
    outside, inside = paths.split("|")
    os.rename(outside, inside)
    return "moved"


def hard_link(paths: str) -> str:
    outside, inside = paths.split("|")
    os.link(outside, inside)
    return "linked"


def symbolic_link(paths: str) -> str:
    outside, inside = paths.split("|")
    os.symlink(outside, inside)
    return "linked"


def pipe_with_a_name(path: str) -> str:
    os.mkfifo(path)
    return "made"


def folder(path: str) -> str:
    os.mkdir(path)
    return "made"


def watch_names(path: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if (descriptor := libc.inotify_init1(0)) < 0 or libc.inotify_add_watch(descriptor, path.encode(), 0xFFF) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    os.close(descriptor)
    return "watching"


def tcp(port: str) -> str:
    with socket.create_connection(("127.0.0.1", int(port)), 5):
        return "connected"


def udp(port: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", int(port)))
    return "sent"


def tcp6(_: str) -> str:
    socket.socket(socket.AF_INET6).close()
    return "made"


def unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return "connected"


def unix_datagrams(_: str) -> str:
    for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
        end.close()
    return "made"


def netlink(_: str) -> str:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
    return "made"


def ask_whether_alive(pid: str) -> str:
    os.kill(int(pid), 0)
    return "alive"


def kill_thread(pid: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 200, "aarch64": 130}[os.uname().machine]
    if libc.syscall(ctypes.c_long(number), int(pid), 0) < 0:
        raise OSError(ctypes.get_errno(), "tkill")
    return "alive"


def hold_process(pid: str) -> str:
    os.close(os.pidfd_open(int(pid)))
    return "held"


def signal_by_file(pid: str) -> str:
    reads, writes = os.pipe()
    fcntl.fcntl(reads, fcntl.F_SETOWN, int(pid))
    os.close(reads)
    os.close(writes)
    return "owned"


def change_limits(pid: str) -> str:
    resource.prlimit(int(pid), resource.RLIMIT_NOFILE)
    return "seen"


def slow_down(pid: str) -> str:
    os.setpriority(os.PRIO_PROCESS, int(pid), 19)
    return "slowed"


def trace(pid: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    seize, detach = 0x4206, 17
    if libc.ptrace(seize, int(pid), None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    libc.ptrace(detach, int(pid), None, None)
    return "traced"


def outlive(_: str) -> str:
    if ctypes.CDLL(None, use_errno=True).prctl(1, 0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return "free"


def program(_: str) -> str:
    subprocess.run(["/bin/true"], check=True)
    return "run"


def replace_itself(_: str) -> str:
    os.execv("/bin/true", ["true"])


def fork(_: str) -> str:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "forked"


def memory_without_address(_: str) -> str:
    os.close(os.memfd_create("hidden"))
    return "made"


def type_into_terminal(_: str) -> str:
    os.close(os.open("/dev/tty", os.O_RDWR))
    return "open"


def descriptors(_: str) -> Json:
    """How many are open."""
    return sum(_is_open(each) for each in range(1024))


def environment(_: str) -> Json:
    return dict(os.environ)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def crash(_: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hog(_: str) -> int:
    # The heap that comes with the fork has free space of its own.
    return len(bytearray(MAX_MEMORY_BYTES + 2**26))


def take_half(_: str) -> int:
    return len(bytearray(MAX_MEMORY_BYTES // 2))


def fill_disk(target: str) -> None:
    for number in range(10):
        with open(f"{target}/{number}", "wb") as file:
            for _ in range(64):
                file.write(b"x" * 2**20)
    hang("")


def flood(_: str) -> str:
    return "x" * 2**21


def garble(_: str) -> None:
    os.write(3, b"[" * 100_000)
    os._exit(0)


def hang(_: str) -> None:
    while True:
        time.sleep(1)


def spin(_: str) -> None:
    while True:
        pass


def mark_and_hang(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    hang("")
