"""What a hostile command would try; run by any user's Python, with nothing but the standard library and the jail."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from gateway.sandbox.command import Command, Ending, Limits, Report, Tier
from gateway.sandbox.jail import landlock
from gateway.sandbox.remote.client import RemoteWorkshop
from gateway.sandbox.remote.protocol import Peer
from gateway.sandbox.workshop import NoJail, Running, Workshop
from gateway.workspace.locks import put_back

SECRET = "TOPSECRET"
PYTHON = "/usr/bin/python3"
GIT = "git -c user.name=a -c user.email=a@b"


def _own(peer: Peer) -> bool:
    return peer.user == os.getuid()


@dataclass(frozen=True)
class Answer:
    report: Report
    output: str
    seconds: float

    @property
    def failed(self) -> bool:
        return self.report.code != 0 and SECRET not in self.output


@dataclass
class Ground:
    """A gateway's folders, sockets and processes, and the jail beside them."""

    base: Path
    tier: Tier
    version: int
    service: str = ""
    """The socket of the service that runs the commands; "" for the jail of this process."""
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.workspace, self.data = self.base / "workspace", self.base / "data"
        self.config, self.persona = self.base / "config.json", self.workspace / "AGENTS.md"
        self.journal, self.rules = self.workspace / "sessions" / "today.md", self.workspace / "rules" / "locked.md"
        self.data.mkdir(parents=True, mode=0o700, exist_ok=True)
        self.lay()
        self.was = {path: (path.read_bytes(), path.stat()) for path in (self.persona, self.rules)}
        self.unix = self.data / "db"
        for family, kind, name in (
            (socket.AF_UNIX, socket.SOCK_STREAM, str(self.unix)),
            (socket.AF_UNIX, socket.SOCK_DGRAM, str(self.data / "log")),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0attack{os.getpid()}"),
        ):
            listening = self.stack.enter_context(socket.socket(family, kind))
            listening.bind(name)
            if kind == socket.SOCK_STREAM:
                listening.listen(8)
        self.tcp, self.udp = (self.stack.enter_context(socket.socket(socket.AF_INET, kind)) for kind in (1, 2))
        for each in (self.tcp, self.udp):
            each.bind(("127.0.0.1", 0))
        self.tcp.listen(8)
        with suppress(OSError):  # a machine may have no IPv6
            six = self.stack.enter_context(socket.socket(socket.AF_INET6))
            six.bind(("::1", self.tcp.getsockname()[1]))
            six.listen(8)
        self.udp.setblocking(False)
        self.victim = subprocess.Popen(["/bin/sleep", "600"], env={"API_KEY": SECRET})
        self.stack.callback(self.victim.wait)
        self.stack.callback(self.victim.kill)
        self.workshop = Workshop(self.base / "scratch", landlock=self.version)
        if self.service:
            self.workshop = RemoteWorkshop(self.base / "scratch", path=Path(self.service), admits=_own)

    def lay(self) -> None:
        """Its files, as they were. A container has mounted the folders themselves."""
        for path in (*self.workspace.glob("*/*"), *self.workspace.glob("*")):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            elif path.parent != self.workspace:
                rmtree(path, ignore_errors=True)
        for name in ("work", "sessions", "memory", "rules"):
            (self.workspace / name).mkdir(parents=True, mode=0o700, exist_ok=True)
        for path, text in (
            (self.data / "secret.key", SECRET),
            (self.config, f'{{"api_key": "{SECRET}"}}'),
            (self.journal, "what was said"),
            (self.persona, "Be kind."),
            (self.rules, "<!-- CORE:LOCK -->"),
        ):
            path.unlink(missing_ok=True)
            path.write_text(text)

    async def run(self, line: str, **limits: float) -> Answer:
        scratch = self.base / "scratch" / "one"
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        closed = ("sessions", "memory", "AGENTS.md")
        apart = self.tier is Tier.LANDLOCK
        command = Command(
            ("/bin/bash", "-c", line), str(self.workspace), self.tier, self.version, "work",
            read_only=("rules/locked.md", *(() if apart else closed)), hidden=closed if apart else (),
            scratch=str(scratch),
            limits=Limits(**{"seconds": 20, "spare_disk_bytes": 0, **limits}),
        )  # fmt: skip
        began, output, size = time.monotonic(), b"", 0
        running = await self._started(command)
        try:
            async for piece in running.pieces():
                size += len(piece)
                output += piece if len(output) < 100_000 else b""
                if size > 16 << 20:
                    running.cancel()
            report = await running.report()
        finally:
            running.close()
            if self.service:  # as the gateway does after each tool run
                for path, (data, status) in self.was.items():
                    name, mode = str(path.relative_to(self.workspace)), status.st_mode & 0o7777
                    put_back(self.workspace, name, data, mode, status.st_mtime_ns)
        return Answer(report, output.decode("utf-8", "replace"), time.monotonic() - began)

    async def _started(self, command: Command) -> Running:
        """Where a command has ended the service, the next one begins it again."""
        for _ in range(100 if self.service else 0):
            with suppress(NoJail):
                return await self.workshop.start(command)
            await asyncio.sleep(0.1)
        return await self.workshop.start(command)

    async def each(self, lines: dict[str, str], *, together: bool) -> dict[str, Answer]:
        """One command for each line, or one for many, which is faster and tells less apart."""
        if not together:
            return {name: await self.run(line) for name, line in lines.items()}
        found: dict[str, Answer] = {}
        names = list(lines)
        for some in (names[at : at + 12] for at in range(0, len(names), 12)):
            parts = [f"({lines[name]}\n) 2>&1; code=$?; echo; echo @@$code" for name in some]
            answer = await self.run("\n".join(parts), seconds=60)
            outputs = re.split(r"\n@@(\d+)\n", answer.output)
            for name, output, code in zip(some, outputs[::2], outputs[1::2], strict=False):
                found[name] = Answer(Report(answer.report.ending, int(code)), output, answer.seconds)
            assert found.keys() >= set(some), answer
        return found

    async def python(self, code: str, **limits: float) -> Answer:
        return await self.run(f"{PYTHON} -I -S -c {shlex.quote(code)}", **limits)


@asynccontextmanager
async def ground(base: Path, tier: Tier, version: int, service: str = "") -> AsyncIterator[Ground]:
    made = Ground(base, tier, version, service)
    try:
        with made.stack:
            yield made
    finally:
        await made.workshop.close()


WORK = {
    "write, rename, delete": "echo a >f1 && mkdir -p d && mv f1 d/f2 && cat d/f2 && rm -r d && ls /usr/bin | head -2",
    "make a script executable": "echo 'echo ran' >s.sh && chmod +x s.sh && ./s.sh && rm s.sh",
    "Python with subprocesses and temporary files": f"""{PYTHON} -c 'import os,subprocess,tempfile,asyncio
print(subprocess.check_output(["/bin/echo","x"])); tempfile.TemporaryFile().write(b"1"); os.urandom(4)
asyncio.run(asyncio.sleep(0))'""",
    "git init and commit": f"git init -q g && cd g && echo 1 >a && {GIT} add a && {GIT} commit -qm x && "
    "git log --oneline && cd .. && rm -rf g",
    "pipes and jobs": "echo hi | sort | uniq -c; (sleep 0.05 & wait); echo done >/dev/null; cat <(echo sub)",
    "modes and times of all kinds": "mkdir t && echo x >t/a && chmod 640 t/a && touch -d 2001-02-03 t/a && "
    "cp -a t u && ln -s a u/l && touch -h -d 2001-01-01 u/l && tar cf t.tar u && rm -r u && tar xpf t.tar && "
    "install -m 750 t/a i && test $(stat -c %a.%Y u/a) = 640.$(stat -c %Y t/a) && test $(stat -c %a i) = 750 && "
    "test $(stat -c %Y t/a) -lt 1000000000 && "
    f'chmod -R u+rwX t && {PYTHON} -c \'import os, shutil; shutil.copystat("t/a", "i"); '
    'f = os.open("i", os.O_RDWR); os.fchmod(f, 0o600); os.utime(f, (1, 2)); s = os.stat("i"); '
    "assert (s.st_mode & 0o777, s.st_mtime) == (0o600, 2)' && rm -r t u i t.tar",
    "signals among its own": "sleep 30 & kill $!; wait $!; test $? = 143 && timeout 0.1 sleep 30; test $? = 124 && "
    "sh -c 'kill $$'; test $? = 143 && (setsid sh -c 'sleep 30 & kill 0; sleep 30'; test $? = 143) && "
    f"""{PYTHON} -c '
import os, signal, subprocess
got = []
os.setpgid(0, 0)
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
signal.raise_signal(signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR1); os.killpg(0, signal.SIGUSR1)
for _ in range(10000):
    if len(got) == 3: break
assert len(got) == 3, got
child = subprocess.Popen(["sleep", "30"], start_new_session=True)
os.killpg(child.pid, 0); os.killpg(child.pid, 9); assert child.wait() == -9
try: os.kill(child.pid, 0)
except ProcessLookupError: pass
else: raise SystemExit("a process that is gone")
assert subprocess.run(["python3", "-c", "import os; os.abort()"]).returncode == -6
'""",
    "names of processes that are no text": f"""{PYTHON} -c '
import ctypes, time
ctypes.CDLL(None).prctl(15, b"\\xff\\xfe")
time.sleep(0.5)'""",
    "read the time and the machine": "date && nproc && head -1 /proc/meminfo && touch -d 2001-01-01 old && rm old",
}
"""What must go on working."""

RESTORED = ("the instructions", "locked text")
"""In a container only mounts are read-only; what a run has changed in these files is put back after it."""

FILES = {
    "read a secret": "cat {data}/secret.key",
    "read the configuration": "cat {config}",
    "list the data folder": "ls {data} | grep secret.key",
    "list a home": "ls /root /home/*/.ssh",
    "write outside": "echo x >{base}/evil",
    "write to the system's temporary folder": "echo x >/tmp/evil_jail && test -e /proc/1/root/tmp/evil_jail && false",
    "append to the configuration": "echo x >>{config}",
    "empty the configuration": "truncate -s0 {config}",
    "empty it by path": "python3 -c 'import os; os.truncate(\"{config}\", 0)'",
    "delete the configuration": "rm -f {config} && test -e {config}",
    "read through a link": "ln -sf {data}/secret.key s; cat s",
    "write through a link": "ln -sf {config} w; echo x >w",
    "hard link out of the way": "ln -f {config} hl && cat hl",
    "move a file out": "echo x >rn; mv rn {base}/rn",
    "make a folder outside": "mkdir {base}/mk",
    "the environment of the gateway": "cat /proc/{pid}/environ",
    "its root": "cat /proc/{pid}/root{data}/secret.key",
    "its folder": "ls /proc/{pid}/cwd/",
    "its open files": "ls -l /proc/{pid}/fd/",
    "its memory": ": </proc/{pid}/mem",
    "its memory map": "cat /proc/{pid}/maps | grep -q .",
    "its command line": "tr '\\0' ' ' </proc/{pid}/cmdline | grep -q .",
    "the way up": "cat ../../data/secret.key",
    "make a device": "mknod blk b 254 0 && head -c1 blk",
    "mount": "mount -t tmpfs none .",
    "new namespaces": "unshare -Ur cat {data}/secret.key",
    "chroot": "chroot / cat {data}/secret.key",
    "bind mount": "unshare -Urm mount --bind {data} .",
    "write a kernel setting": "echo 1 >/proc/sys/kernel/ns_last_pid",
    "bound the machine's processes": "echo 400 >/proc/sys/kernel/pid_max",
    "write /etc": "echo x >>/etc/hosts",
    "read passwords": "cat /etc/shadow",
    "read the disk": "head -c4 /dev/vda",
    "read /sys": "ls /sys/kernel",
    "read kernel messages": "dmesg || cat /dev/kmsg",
    "chmod the configuration": "chmod 777 {config}",
    "set its time": "touch -d 2001-01-01 {config}",
    "chown it": "chown 12345 {config}",
    "write a journal": "echo evil >>../sessions/today.md",
    "add a journal": "echo evil >../sessions/new.md",
    "delete a journal": "rm -f ../sessions/today.md",
    "move the journals away": "mv ../sessions ../gone",
    "chmod a journal": "chmod 777 ../sessions/today.md",
    "set a journal's time": "touch -d 2001-01-01 ../sessions/today.md",
    "change the instructions": "echo evil >../AGENTS.md",
    "replace the instructions": "echo evil >new; mv -f new ../AGENTS.md",
    "link over the instructions": "ln -sf work/x ../AGENTS.md",
    "change locked text": "echo evil >>../rules/locked.md",
    "empty locked text": "truncate -s0 ../rules/locked.md",
    "replace locked text": "echo evil >lock; mv -f lock ../rules/locked.md",
    "delete locked text": "rm -f ../rules/locked.md",
    "move locked text away": "mv ../rules/locked.md away",
    "link over locked text": "echo evil >lock; ln -f lock ../rules/locked.md",
    "link to locked text and write there": "ln ../rules/locked.md hard && echo evil >hard",
    "chmod locked text": "chmod 777 ../rules/locked.md",
    "set the time of locked text": "touch -d 2001-01-01 ../rules/locked.md",
    "map locked text": 'python3 -c \'import mmap; f = open("../rules/locked.md", "r+b"); '
    'mmap.mmap(f.fileno(), 0)[:1] = b"x"\'',
    "a set-uid file": "cp /bin/true t && chmod 4755 t",
    "a set-uid file at its creation": "python3 -c 'import os; os.open(\"sid\", os.O_CREAT | os.O_WRONLY, 0o4755)'",
    "a set-gid folder": "mkdir sgd && chmod 2755 sgd && test -g sgd",
    "type into a terminal": 'python3 -c \'import fcntl; fcntl.ioctl(open("/dev/tty"), 0x5412, b"x")\'',
}

CALL = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *a):
    n = x86 if platform.machine() == "x86_64" else arm
    r = libc.syscall(ctypes.c_long(n), *[ctypes.c_long(v) if isinstance(v, int) else v for v in a])
    if r >= 0: print("GOT", r)
    return r
"""
CALLS = {
    "trace": "call(101, 117, 16, {pid}, 0, 0)",
    "read another's memory": "b=ctypes.create_string_buffer(64); call(310, 270, {pid}, b, 1, b, 1, 0)",
    "take another's descriptor": "f=os.pidfd_open({pid}); call(438, 438, f, 0, 0)",
    "signal by descriptor": "f=os.pidfd_open({pid}); call(424, 424, f, 0, 0, 0)",
    "signal": "call(62, 129, {pid}, 0)",
    "signal as another thread": "call(234, 131, {pid}, {pid}, 0)",
    "signal its group": "call(62, 129, -os.getpgid({pid}), 0)",
    "signal the gateway": "call(62, 129, {gateway}, 0)",
    "queue a signal to a thread": "b=(ctypes.c_int*32)(0, 0, -1); call(297, 240, {pid}, {pid}, 0, b)",
    "signal a thread": "call(200, 130, {pid}, 0)",
    "queue a signal": "b=(ctypes.c_int*32)(0, 0, -1); call(129, 138, {pid}, 0, b)",
    "signals by a file": "import fcntl; r,w=os.pipe(); fcntl.fcntl(r, 8, {pid}); print('GOT')",
    "change another's limits": "b=(ctypes.c_ulong*2)(1,1); call(302, 261, {pid}, 7, b, 0)",
    "read another's limits": "b=(ctypes.c_ulong*2)(1,1); call(302, 261, {pid}, 7, 0, b)",
    "pin another": "b=(ctypes.c_ulong*1)(1); call(203, 122, {pid}, 8, b)",
    "change another's scheduling": "b=(ctypes.c_int*1)(0); call(144, 119, {pid}, 3, b)",
    "slow another down": "call(141, 140, 0, {pid}, 19)",
    "slow its user down": "call(141, 140, 2, 0, 19)",
    "another's input and output priority": "call(251, 30, 1, {pid}, 0x6000)",
    "shared memory": "call(29, 194, 0, 4096, 0o1600)",
    "semaphores": "call(64, 190, 0, 1, 0o1600)",
    "message queues": "call(68, 186, 0, 0o1600)",
    "POSIX message queues": "call(240, 180, b'evil', 0o102, 0o600, 0)",
    "memory without an address": "call(319, 279, b'x', 0)",
    "secret memory": "call(447, 447, 0)",
    "asynchronous input and output": "b=(ctypes.c_ulong*1)(0); call(206, 0, 1000, b)",
    "rings": "b=ctypes.create_string_buffer(256); call(425, 425, 8, b)",
    "watch names": "call(294, 26, 0)",
    "watch files": "call(300, 262, 0x200, 0)",
    "keys": "call(250, 219, 0, -3, 1)",
    "add a key": "call(248, 217, b'user', b'k', b'v', 1, -3)",
    "programs for the kernel": "b=ctypes.create_string_buffer(128); call(321, 280, 0, b, 128)",
    "performance events": "b=ctypes.create_string_buffer(128); call(298, 241, b, 0, -1, -1, 0)",
    "page faults": "call(323, 282, 1)",
    "another personality": "call(135, 92, 0x0040000)",
    "files by handle": "b=ctypes.create_string_buffer(256); call(304, 265, 3, b, 0)",
    "a copy of the mounts": "call(428, 428, -100, b'/', 1)",
    "an unmount": "call(166, 39, b'/', 2)",
    "namespaces by clone": "call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)",
    "namespaces by clone3": "b=(ctypes.c_ulong*11)(0x10000000,0,0,0,17); call(435, 435, b, 88)",
    "another call table": "r=libc.syscall(ctypes.c_long(0x40000000 | 39)); print('GOT' if r >= 0 else '')",
    "a young call": "call(471, 471, 0)",
    "a large pipe": "import fcntl; r,w=os.pipe(); fcntl.fcntl(r, 1031, 1 << 20); print('GOT')",
    "disk space at once": "f=os.open('big', os.O_CREAT | os.O_RDWR); call(285, 47, f, 0, 0, 1 << 30)",
    "locked memory": "b=ctypes.create_string_buffer(4096); call(149, 228, b, 1)",
    "attributes": "call(188, 5, b'.', b'user.x', b'y', 1, 0)",
    "young attributes": "b=ctypes.create_string_buffer(b'y'); call(463, 463, -100, b'.', 0, b'user.x', b, 16)",
    "attributes elsewhere": "f=os.open('/etc/passwd', 0); b=ctypes.create_string_buffer(64); p=b'{config}'\n"
    "for n, m, *a in ((191, 8, p, b'user.x', 0, 0), (192, 9, p, b'user.x', 0, 0), (193, 10, f, b'user.x', 0, 0), "
    "(194, 11, p, 0, 0), (195, 12, p, 0, 0), (196, 13, f, 0, 0), (464, 464, -100, p, 0, b'user.x', b, 16), "
    "(465, 465, -100, p, 0, 0, 0), (468, 468, -100, p, b, 24, 0)):\n"
    "    call(n, m, *a); ctypes.get_errno() == 95 or print('GOT')",
    "shared memory without a name": "import mmap; mmap.mmap(-1, 4096); print('GOT')",
    "pages for a pipe": "r,w=os.pipe(); t=ctypes.create_string_buffer(8); "
    "b=(ctypes.c_ulong*2)(ctypes.addressof(t), 8); call(278, 75, w, b, 1, 0)",
    "pages of a file for a pipe": "r,w=os.pipe(); f=os.open('/bin/sh', 0); call(275, 76, f, 0, w, 0, 4096, 0)",
    "pages of a pipe for another": "r,w=os.pipe(); s,v=os.pipe(); os.write(w, b'x'); call(276, 77, r, v, 1, 0)",
    "pages of a file for a socket": "import socket; s,t=socket.socketpair(); f=os.open('/bin/sh', 0); "
    "call(40, 71, s.fileno(), f, 0, 4096)",
    "a large buffer of a socket": "import socket; s,t=socket.socketpair(); s.setsockopt(1, 7, 1 << 22); print('GOT')",
    "a fault in the clock": "b=(ctypes.c_long*2)(0, 0); call(227, 112, 0, b)",
    "another host name": "call(170, 161, b'evil', 4)",
    "swap": "call(168, 225, b'/swap')",
    "accounting": "call(163, 89, 0)",
    "its memory by file": "f=os.open('/proc/{pid}/mem', os.O_RDWR); print('GOT')",
}
RACE = """
import ctypes, os, platform, threading, time
libc = ctypes.CDLL(None, use_errno=True)
open("mine", "w").close()
def against(swap, act, seconds=1.0):
    ends = time.monotonic() + seconds
    def forever():
        while time.monotonic() < ends:
            swap()
    thread = threading.Thread(target=forever); thread.start()
    while time.monotonic() < ends:
        try: act()
        except OSError: pass
    thread.join()
config = {config!r}.encode()
"""
CHANGES = {
    "the text of a path": "a, b = b'mine'.ljust(400, b'\\0'), config.ljust(400, b'\\0'); "
    "text = ctypes.create_string_buffer(a, 400)\n"
    "def swap(): ctypes.memmove(text, b, 400); ctypes.memmove(text, a, 400)\n"
    "against(swap, lambda: libc.chmod(text, 0o777))",
    "a link": "os.symlink('mine', 'one'); os.symlink(config, 'two')\n"
    "def swap(): os.rename('one', 'l'); os.symlink('mine', 'one'); os.rename('two', 'l'); os.symlink(config, 'two')\n"
    "against(swap, lambda: os.chmod('l', 0o777))",
    "a folder": "os.mkdir('d'); open('d/config.json', 'w').close(); os.symlink(os.path.dirname(config), 's')\n"
    "def swap(): os.rename('d', 'e'); os.rename('s', 'd'); os.rename('d', 's'); os.rename('e', 'd')\n"
    "against(swap, lambda: os.utime('d/config.json', (1, 1)))",
    "a descriptor": "a = os.open('mine', os.O_RDWR); b = os.open('../rules/locked.md', os.O_RDONLY); c = os.dup(a)\n"
    "def swap(): os.dup2(b, c); os.dup2(a, c)\n"
    "against(swap, lambda: (os.fchmod(c, 0o777), os.utime(c, (1, 1))))",
    "the mode of locked text by a descriptor": "f = os.open('../rules/locked.md', os.O_RDONLY); os.fchmod(f, 0o777)",
    "its time by a descriptor": "f = os.open('../rules/locked.md', os.O_RDONLY); os.utime(f, (1, 1))",
    "the mode by a bare descriptor": "f = os.open(config, os.O_PATH); n = 452\n"
    "print(libc.syscall(ctypes.c_long(n), f, b'', 0o777, 0x1000))\n"
    "os.chmod(f'/proc/self/fd/{{f}}', 0o777)",
    "the time by a bare descriptor": "f = os.open(config, os.O_PATH); libc.utimensat(f, b'', bytes(32), 0x1000)\n"
    "libc.futimens(f, bytes(32)); libc.utimensat(-100, b'/proc/self/fd/%d' % f, bytes(32), 0)",
    "the way by a process": "for way in (b'/proc/self/cwd/../../config.json', b'/proc/self/root' + config, "
    "b'/proc/thread-self/root' + config, b'/dev/fd/../root' + config, b'/proc/%d/root%s' % (os.getppid(), config)):\n"
    "    libc.chmod(way, 0o777); libc.utimes(way, bytes(32))",
    "the way up": "libc.chmod(b'../../config.json', 0o777); os.chdir('..'); libc.chmod(b'../config.json', 0o777)\n"
    "libc.chmod(b'.', 0o777); libc.chmod(b'sessions', 0o777); libc.chmod(b'sessions/today.md', 0o777)",
    "a link as it is": "os.symlink(config, 'x'); libc.fchmodat(-100, b'x', 0o777, 0x100); libc.chmod(b'x', 0o777)\n"
    "libc.utimensat(-100, b'x', bytes(32), 0x100)",
}
"""Of files that a call only names, as something else changes meanwhile."""
NONSENSE = {
    "addresses that are none": "arm = platform.machine() == 'aarch64'\n"
    "for at in (0, 1, 2**47, 2**63, 2**64 - 1):\n"
    "    for number, *rest in ((88 if arm else 280, -100), (53 if arm else 268, 2**31 - 1), (452, -7)):\n"
    "        libc.syscall(*map(ctypes.c_ulong, (number, *rest, at, at, at)))",
    "a path without end": "libc.chmod(b'x' * 100_000, 0o777); libc.chmod(b'', 0o777); "
    "libc.chmod(b'\\xff/' * 900, 0o777)",
    "a caller that is gone": "for _ in range(200):\n"
    "    if not (child := os.fork()):\n"
    "        while True: libc.chmod(b'mine', 0o700)\n"
    "    os.kill(child, 9); os.waitpid(child, 0)",
    "the owner": "libc.chown(b'mine', 12345, 12345); libc.chown(config, -1, -1); libc.lchown(config, os.getuid(), -1)",
}
"""What must not confuse whoever answers such calls."""
WATCHER = {
    "the watcher's memory": "f=os.open(f'/proc/{{os.getppid()}}/mem', os.O_RDWR); print('GOT')",
    "the watcher's environment": "f=os.open(f'/proc/{{os.getppid()}}/environ', os.O_RDONLY); print('GOT')",
    "trace the watcher": "call(101, 117, 16, os.getppid(), 0, 0)",
}

NET = """
import socket
try:
    s = socket.socket({0}, {1}); s.settimeout(1); s.connect({2}); s.send(b"x"); print("GOT")
except OSError as error:
    print("refused", error)
"""
SOCKETS = {
    "TCP": ("socket.AF_INET", "socket.SOCK_STREAM", '("127.0.0.1", {tcp})'),
    "TCP 6": ("socket.AF_INET6", "socket.SOCK_STREAM", '("::1", {tcp})'),
    "UDP": ("socket.AF_INET", "socket.SOCK_DGRAM", '("127.0.0.1", {udp})'),
    "the metadata of a cloud": ("socket.AF_INET", "socket.SOCK_STREAM", '("169.254.169.254", 80)'),
    "a database by path": ("socket.AF_UNIX", "socket.SOCK_STREAM", '"{unix}"'),
    "an abstract name": ("socket.AF_UNIX", "socket.SOCK_STREAM", '"\\0attack{pid}"'),
    "raw": ("socket.AF_INET", "socket.SOCK_RAW", '("127.0.0.1", 0)'),
    "netlink": ("socket.AF_NETLINK", "socket.SOCK_RAW", "(0, 0)"),
    "vsock": ("40", "socket.SOCK_STREAM", "(2, 1024)"),
    "packets": ("17", "socket.SOCK_RAW", '("lo", 0)'),
}

FILLED = """
import array, ctypes, mmap, os, socket, sys, threading, time
kept = []
def full(write, *ends):
    for end in ends:
        os.set_blocking(end if isinstance(end, int) else end.fileno(), False)
        try:
            while True: write(end, bytes(65536))
        except BlockingIOError: kept.append(end)
def pair():
    made = socket.socketpair(); full(socket.socket.send, *made); return made
def mapped(file):
    for _ in range(20):
        some = mmap.mmap(file, 10 << 20)
        for at in range(0, 10 << 20, 4096): some[at] = 1
        some.madvise(mmap.MADV_DONTNEED); kept.append(some)
"""
"""Ways to fill memory that is not a process's own; a second after it is done, it says that it came through."""
PIPES = "for _ in range(4): os.fork()\nfor _ in range(500): r, w = os.pipe(); full(os.write, w); kept.append(r)"
THROUGH = "\ntime.sleep(1); print('THROUGH')"


def _filling(code: str) -> str:
    return f"{PYTHON} -I -S -c {shlex.quote(FILLED + code + THROUGH)}"


def _kept(answer: Answer) -> bool:
    return "THROUGH" not in answer.output


_MOST_THREADS = 100
LIMITS: dict[str, tuple[str, dict[str, float], Callable[[Answer], bool]]] = {
    "time, in a flood of calls": (
        f"""{PYTHON} -c '
import os
for _ in range(3): os.fork()
while True: os.chmod(".", 0o700)
'""",
        {"seconds": 1}, lambda a: a.report.ending is Ending.TIMEOUT and a.seconds < 10,
    ),
    "time": ("sleep 30", {"seconds": 0.5}, lambda a: a.report.ending is Ending.TIMEOUT and a.seconds < 5),
    "memory of one process": (
        f"{PYTHON} -c 'x = bytearray(900 << 20)'", {"memory": 300 << 20}, lambda a: a.report.code != 0,
    ),
    "memory of a tree": (
        f"for i in 1 2 3 4 5 6; do {PYTHON} -c 'import time; b = bytearray(90 << 20); time.sleep(20)' & done; wait",
        {"memory": 300 << 20}, lambda a: a.report.ending is Ending.MEMORY,
    ),
    "processes": (
        "for i in $(seq 300); do sleep 20 & done; wait",
        {"processes": 64}, lambda a: a.report.ending is Ending.PROCESSES or "retry" in a.output,
    ),
    "a fork bomb": (
        "bomb() { bomb | bomb & }; bomb; sleep 20",
        {"seconds": 5, "processes": 200}, lambda a: a.report.ending in {Ending.PROCESSES, Ending.TIMEOUT},
    ),
    "comets": (
        f"""{PYTHON} -c '
import os
for _ in range(20):
    if not os.fork():
        while True:
            try:
                if os.fork(): os._exit(0)
            except OSError: pass
' ; sleep 20""",
        {"seconds": 1.5}, lambda a: a.report.ending in {Ending.PROCESSES, Ending.TIMEOUT} and a.seconds < 15,
    ),
    "CPU": ("while :; do :; done", {"cpu_seconds": 1, "seconds": 300}, lambda a: a.report.code in {137, 152}),
    "the size of a file": (
        "dd if=/dev/zero of=big bs=1M count=64 2>&1; stat -c %s big; rm -f big",
        {"file_bytes": 8 << 20}, lambda a: "8388608" in a.output,
    ),
    "the disk": (
        "while :; do dd if=/dev/zero of=big$((i++)) bs=1M count=64 2>/dev/null || exit; done; sleep 20",
        {"disk_bytes": 200 << 20}, lambda a: a.report.ending is Ending.DISK,
    ),
    "shared memory": (_filling("mapped(-1)"), {"memory": 128 << 20}, _kept),
    "shared memory of a device": (_filling("mapped(os.open('/dev/zero', 2))"), {"memory": 128 << 20}, _kept),
    "memory files": (
        _filling("f = open('/dev/shm/big', 'wb', 0)\nfor _ in range(200): f.write(bytes(1 << 20))"),
        {"memory": 128 << 20}, _kept,
    ),
    "buffers of sockets": (_filling("for _ in range(400): pair()"), {"memory": 128 << 20}, _kept),
    "buffers of sockets under way": (
        _filling(
            "a, b = socket.socketpair()\nfor _ in range(250):\n    c, d = pair()\n    kept.clear()\n"
            "    a.sendmsg([b'x'], [(1, 1, array.array('i', [c.fileno(), d.fileno()]))])\n    c.close(); d.close()"
        ),
        {"memory": 96 << 20}, _kept,
    ),
    "buffers of pipes": (
        _filling(PIPES), {"memory": 96 << 20}, _kept,
    ),
    "buffers of pipes that are hidden": (
        _filling(f"ctypes.CDLL(None).prctl(4, 0)\n{PIPES}"), {"memory": 96 << 20}, _kept,
    ),
    "memory behind a thread that has ended": (
        _filling(
            "def work():\n    time.sleep(0.3); kept.append(bytearray(40 << 20)); time.sleep(2)\n"
            "    print('THROUGH', flush=True)\n"
            "for _ in range(3): os.fork()\nthreading.Thread(target=work).start()\n"
            "ctypes.CDLL(None).syscall(93 if os.uname().machine == 'aarch64' else 60, 0)"
        ),
        {"memory": 160 << 20}, _kept,
    ),
    "threads": (
        f"""{PYTHON} -c '
import threading, time
threading.stack_size(65536)
for n in range(2, 1000):
    threading.Thread(target=time.sleep, args=(5,), daemon=True).start(); print(n, flush=True)'""",
        {"processes": _MOST_THREADS},
        lambda a: all(int(n) <= _MOST_THREADS for n in a.output.split() if n.isdigit()),
    ),
    "the number of files": (
        f"""{PYTHON} -c '
import os
for n in range(10**6):
    os.mkdir(f"big{{n}}")
    for m in range(1000): os.close(os.open(f"big{{n}}/{{m}}", os.O_CREAT))'""",
        {"disk_files": 3000}, lambda a: a.report.ending is Ending.DISK,
    ),
    "a disk with nothing to spare": (
        "exec 2>/dev/null; echo x >big; mkdir bigd; ln -s x bigl; mkfifo bigp; "
        f"{PYTHON} -c 'open(\"bigf\", \"w\")'; ls -d big*; cat ../rules/locked.md && echo 'it reads'",
        {"spare_percent": 100},
        lambda a: a.report.ending is Ending.REFUSED or ("it reads" in a.output and "big" not in a.output),
    ),
    "output": ("yes", {}, lambda a: a.report.ending is Ending.CANCELLED),
    "core files": ("ulimit -c", {}, lambda a: a.output.strip() == "0"),
}  # fmt: skip


NOT_IN_A_CONTAINER = {"threads", "memory files"}
"""Its own limits bound these."""
LONG = {"processes", "a fork bomb", "comets", "memory of a tree", "the disk"}


def values_of(place: Ground) -> dict[str, object]:
    """What the lines of the attacks are about."""
    return {
        "base": place.base, "data": place.data, "config": str(place.config), "pid": os.getpid(),
        "gateway": os.getpid(), "unix": place.unix,
        "tcp": place.tcp.getsockname()[1], "udp": place.udp.getsockname()[1],
    }  # fmt: skip


async def attack(place: Ground, *, short: bool) -> list[tuple[str, bool, str]]:
    """Each attempt: its name, whether the jail held, and what was answered."""
    values = values_of(place)
    rows: list[tuple[str, bool, str]] = []

    def row(name: str, held: bool, answer: Answer) -> None:
        rows.append((name, held, f"{answer.report.ending} {answer.report.code}: {answer.output[-160:]!r}"))

    for name, line in WORK.items():
        answer = await place.run(line)
        row(f"works: {name}", answer.report.code == 0, answer)
    before = unchangeable(place)
    files = {name: line.format(**values) for name, line in FILES.items()}
    for name, answer in (await place.each(files, together=short)).items():
        restored = bool(place.service) and any(each in name for each in RESTORED)
        row(f"files: {name}", (answer.failed or restored) and (short or unchangeable(place) == before), answer)
    rows.append(("files: all is as it was", unchangeable(place) == before, ""))
    answer = await place.run("env; cat /proc/self/environ")
    row("files: its own environment", SECRET not in answer.output, answer)
    calls = {name: CALL + code.format(**{**values, "pid": place.victim.pid}) for name, code in CALLS.items()}
    lines = {name: f"{PYTHON} -I -S -c {shlex.quote(code)}; true" for name, code in calls.items()}
    for name, answer in (await place.each(lines, together=short)).items():
        row(f"calls: {name}", "GOT" not in answer.output and place.victim.poll() is None, answer)
    before = unchangeable(place)
    for name, code in (CHANGES | NONSENSE).items():
        answer = await place.python(RACE.format(**values) + code.format())
        again = await place.run(f"rm -rf * && echo {name}")
        held = unchangeable(place) == before and answer.report.ending is Ending.EXITED and name in again.output
        row(f"changes: {name}", held, answer)
    for name, code in WATCHER.items():
        answer = await place.python(CALL + code.format())
        row(f"calls: {name}", "GOT" not in answer.output and answer.report.ending is Ending.EXITED, answer)
    for name, (family, kind, address) in SOCKETS.items():
        answer = await place.python(NET.format(family, kind, address.format(**values)))
        row(f"network: {name}", "GOT" not in answer.output and "refused" in answer.output, answer)
    answer = await place.python(
        "import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM);"
        f"a.sendto(b'x', '{place.data}/log'); print('GOT')"
    )
    row("network: a datagram to a path", "GOT" not in answer.output, answer)
    await _signals(place, row)
    for name, (line, limits, held) in LIMITS.items():
        if (short and name in LONG) or (place.tier is Tier.CONTAINER and name in NOT_IN_A_CONTAINER):
            continue
        answer = await place.run(line, **limits)
        row(f"limits: {name}", held(answer), answer)
        for left in place.workspace.glob("work/big*"):
            rmtree(left) if left.is_dir() else left.unlink()
    await _deaths(place, row)
    return rows


def unchangeable(place: Ground) -> object:
    found = []
    for path in (place.config, place.journal, place.persona, place.rules, place.data / "secret.key"):
        if not os.path.lexists(path):
            found.append(None)
            continue
        status = path.lstat()
        found.append((path.read_text(), status.st_mode, status.st_mtime_ns, status.st_uid, status.st_nlink))
    names = sorted(each.name for each in (*place.base.iterdir(), *place.workspace.glob("sessions/*")))
    return found, names, os.path.exists("/tmp/evil_jail")


async def _signals(place: Ground, row: Callable[[str, bool, Answer], None]) -> None:
    bystander = _started("/bin/sleep", "600")
    try:
        answer = await place.run("kill -9 $PPID; kill -9 1; kill -9 -1; sleep 0.1; echo alive")
        row("signals: everything at once", bystander.poll() is None and place.victim.poll() is None, answer)
        again = await place.run("echo next")
        row("signals: the next command runs", again.output == "next\n", again)
    finally:
        bystander.kill()
        bystander.wait()


async def _deaths(place: Ground, row: Callable[[str, bool, Answer], None]) -> None:
    mark = f"7{os.getpid() % 10000:04}"
    hiding = f"(setsid sh -c 'setsid sleep {mark} & sleep {mark}' &); (nohup sleep {mark} &); sleep {mark}"
    answer = await place.run(hiding, seconds=0.5)
    row("deaths: a tree that hides dies with its time", _alive(mark) == 0, answer)
    answer = await place.run(f"(setsid sleep {mark} >/dev/null 2>&1 </dev/null &); echo bye")
    row("deaths: a daemon dies with its command", _alive(mark) == 0, answer)
    code = (
        "import asyncio\nfrom pathlib import Path\nfrom tests.security.workshop.attacks import *\n"
        "async def main():\n"
        f"    where = Path({str(place.base / 'other')!r})\n"
        f"    async with ground(where, Tier({str(place.tier)!r}), {place.version}, {place.service!r}) as g:\n"
        f"        await g.run('setsid sleep {mark} & sleep {mark}')\n"
        "asyncio.run(main())"
    )
    gateway = _started(sys.executable, "-c", code)
    await _until(lambda: _alive(mark) == 2)
    began = _alive(mark)
    gateway.kill()
    gateway.wait()
    await _until(lambda: _alive(mark) == 0)
    os.killpg(gateway.pid, signal.SIGKILL)  # what it started beside
    row("deaths: the gateway is killed", (began, _alive(mark)) == (2, 0), answer)


def _started(*line: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(line, start_new_session=True)


async def _until(done: Callable[[], bool]) -> None:
    for _ in range(200):
        if done():
            return
        await asyncio.sleep(0.05)


def _alive(mark: str) -> int:
    found = 0
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            found += process.name.isdigit() and (process / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode()
    return found


async def main(base: str, tier: str, version: int, service: str, *, short: bool) -> None:
    async with ground(Path(base), Tier(tier), version, service) as place:
        sys.stdout.write(json.dumps(await attack(place, short=short)))


if __name__ == "__main__":
    known = int(sys.argv[3]) or landlock.abi()
    asyncio.run(main(sys.argv[1], sys.argv[2], known, sys.argv[5], short=sys.argv[4] == "short"))
