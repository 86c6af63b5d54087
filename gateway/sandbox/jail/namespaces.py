"""A root, processes, network and users of its own, without any privilege; and the part of the system that a command
sees: programs, libraries and a few settings, no private file."""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gateway.sandbox.command import Command, Tier
from gateway.sandbox.jail.kernel import attach_tree, copied_tree, mount, replace_root, unshare
from gateway.sandbox.jail.landlock import FileAccess

WORKSPACE, HOME, TEMPORARY = "/workspace", "/home/agent", "/tmp"  # of a root of its own
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
# Only public files: in a root of its own, a command of a gateway that is root could read private ones, too.
SETTINGS = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives", "bash.bashrc", "ca-certificates", "fonts", "hosts", "host.conf", "inputrc", "java-17-openjdk",
        "java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types",
        "nsswitch.conf", "os-release", "perl", "pki/ca-trust", "pki/tls/certs", "profile", "protocols", "python3",
        "python3.11", "python3.12", "python3.13", "R", "rpc", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo",
        "texmf", "timezone",
    )
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
"""The last one is a command's own terminal, if it has one."""
_ABOUT_MACHINE = tuple(
    f"/proc/{name}" for name in ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")
)
_ACCOUNTS = ("/etc/passwd", "/etc/group")
"""In namespaces a command has its own."""
_SHARED_MEMORY = "/dev/shm"


def command_environment(command: Command) -> dict[str, str]:
    """The variables of a command; none are the gateway's."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": HOME if command.tier is Tier.NAMESPACES else command.scratch,
        "TMPDIR": TEMPORARY if command.tier is Tier.NAMESPACES else command.scratch,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",  # a file that may not be read ends git
        **command.environment,
    }


def workspace_of(command: Command) -> str:
    """The path of the workspace as the command sees it."""
    return WORKSPACE if command.tier is Tier.NAMESPACES else command.workspace


def file_access(command: Command) -> Mapping[str, FileAccess]:
    """The rules for Landlock, with paths as the command sees them."""
    devices, root = dict.fromkeys(DEVICES, FileAccess.DEVICE), workspace_of(command)
    if command.tier is Tier.NAMESPACES:
        # Its root holds nothing else; mounts hide parts of the workspace and make parts read-only.
        own = dict.fromkeys((HOME, TEMPORARY, _SHARED_MEMORY), FileAccess.WORK)
        return {"/": FileAccess.RUN, **devices, **own, root: _work(command)}
    system = dict.fromkeys((*PROGRAMS, *SETTINGS, *_ACCOUNTS, *command.reads), FileAccess.RUN)
    machine = dict.fromkeys(_ABOUT_MACHINE, FileAccess.READ)
    # In a container, mounts and a check afterwards protect the gateway's files: new names at the top are possible.
    files = {root: _work(command)} if command.tier is Tier.CONTAINER else dict(_workspace_access(command))
    return {**system, **devices, **machine, **files, command.scratch: _work(command)}


def _work(command: Command) -> FileAccess:
    return FileAccess.CLEAN if command.deletes_only else FileAccess.WORK


def _workspace_access(command: Command, folder: str = "") -> Iterator[tuple[str, FileAccess]]:
    """The rights to each entry by itself, since rights to a folder would include closed entries in it."""
    with suppress(OSError), os.scandir(os.path.join(command.workspace, folder)) as entries:
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if path in command.hidden or entry.is_symlink():
                continue
            if path in command.read_only:
                yield entry.path, FileAccess.RUN
            elif any(each.startswith(f"{path}/") for each in command.read_only):
                yield entry.path, FileAccess.READ
                yield from _workspace_access(command, path)
            else:
                yield entry.path, _work(command)


_FILES, _GROUPS, _HOST, _MESSAGES, _USERS, _PROCESSES, _NETWORK = (
    0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_SET_FLAGS, _UP = 0x8914, 1
_USER_ID = 1000
_PRIVATE = 0x4000 | 0x40000
"""With everything below."""
_NO_SET_ID, _NO_DEVICES, _NO_PROGRAMS = 2, 4, 8
_READ_ONLY = 1
_SAFE = _NO_SET_ID | _NO_DEVICES
_MEMORY = "mode=755,size=256m,nr_inodes=65536"
"""For the root, which holds temporary files."""
_COPIED_BYTES = 256 * 1024
_PLACES = ("/mnt", "/media", "/srv", "/var", "/usr")
"""Places to build the root in; covered only for the process that builds."""


def enter_namespaces() -> None:
    """Enter new namespaces; the next process that is started is the init of a new one of processes."""
    user, group = os.getuid(), os.getgid()
    unshare(_USERS | _PROCESSES | _NETWORK | _MESSAGES | _HOST | _GROUPS)
    maps = {"setgroups": "deny", "uid_map": f"{_USER_ID} {user} 1", "gid_map": f"{_USER_ID} {group} 1"}
    for name, text in maps.items():
        Path(f"/proc/self/{name}").write_text(text)


def enter_root(command: Command) -> None:
    """Make a root of programs, the workspace and memory; for the init."""
    unshare(_FILES)
    mount(None, "/", _PRIVATE)
    trees = list(_trees(command))  # before anything is covered
    base = next(place for place in _PLACES if os.path.isdir(place))
    mount(b"tmpfs", base, _SAFE, _MEMORY)
    _fill(base)
    for target, tree in trees:
        attach_tree(tree, _place(base + target, tree))
    os.mkdir(f"{base}/proc")
    mount(b"proc", f"{base}/proc", _SAFE | _NO_PROGRAMS)
    if command.network:
        _bound_buffers(f"{base}/proc")
    for name in (*command.read_only, *command.hidden):
        _cover(f"{base}{WORKSPACE}/{name}", hide=name in command.hidden)
    mount(None, f"{base}/proc", 0x20 | _READ_ONLY | _SAFE | _NO_PROGRAMS)
    replace_root(base)


def start_loopback() -> None:
    """Bring up the loopback device, the only one of this network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def _trees(command: Command) -> Iterator[tuple[str, int]]:
    for path in (*PROGRAMS, *SETTINGS, *command.reads):
        if os.path.exists(path) and not os.path.islink(path) and not _copied(path):
            yield path, copied_tree(path, _READ_ONLY | _SAFE)
    for path in filter(os.path.exists, DEVICES):
        # Both read as zeros, but a shared mapping of the former is memory that no limit counts.
        yield path, copied_tree(path.replace("/zero", "/full"), _NO_SET_ID | _NO_PROGRAMS)
    yield WORKSPACE, copied_tree(command.workspace, _SAFE)


def _copied(path: str) -> bool:
    """Whether to copy a file: a mount takes longer."""
    return path in SETTINGS and os.path.isfile(path) and os.path.getsize(path) <= _COPIED_BYTES


def _fill(base: str) -> None:
    for name in ("dev/shm", "etc", "home/agent", "tmp"):
        os.makedirs(f"{base}/{name}")
    for path in (*PROGRAMS, *SETTINGS):
        if os.path.islink(path):
            os.makedirs(os.path.dirname(base + path), exist_ok=True)
            os.symlink(os.readlink(path), base + path)
        elif _copied(path) and os.access(path, os.R_OK):
            os.makedirs(os.path.dirname(base + path), exist_ok=True)
            with open(path, "rb", 0) as source, open(base + path, "wb", 0) as copy:
                copy.write(source.read())
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"{base}/dev/{name}")
    users = f"agent:x:{_USER_ID}:{_USER_ID}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
    Path(f"{base}/etc/passwd").write_text(users)
    Path(f"{base}/etc/group").write_text(f"agent:x:{_USER_ID}:\nnogroup:x:65534:\n")


def _place(target: str, tree: int) -> str:
    """Make a mount point of the same kind."""
    if os.path.isdir(f"/proc/self/fd/{tree}"):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
    return target


def _cover(path: str, *, hide: bool) -> None:
    """Make an entry of the workspace read-only, or empty; links lead nowhere else anyway."""
    if not os.path.lexists(path) or os.path.islink(path):
        return
    if not hide:
        attach_tree(copied_tree(path, _READ_ONLY | _SAFE), path)
    elif os.path.isdir(path):
        mount(b"tmpfs", path, _READ_ONLY | _SAFE, "size=4k,mode=755")
    else:
        attach_tree(copied_tree("/dev/null", _READ_ONLY | _SAFE), path)


def _bound_buffers(proc: str) -> None:
    """Limit the buffers of each socket, memory that no process accounts for."""
    for name in ("tcp_rmem", "tcp_wmem"):
        Path(f"{proc}/sys/net/ipv4/{name}").write_text("4096 16384 32768")
