"""What a command sees of the system: programs, libraries and a few settings; nothing that is anybody's."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from gateway.sandbox.command import Command, Tier
from gateway.sandbox.landlock import Access

WORKSPACE, HOME, TEMPORARY = "/workspace", "/home/agent", "/tmp"  # of a root of its own
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
# Only what is public: in a root of its own, a command of a gateway that is root could read private files, too.
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
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ABOUT_MACHINE = tuple(
    f"/proc/{name}" for name in ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")
)
_ACCOUNTS = ("/etc/passwd", "/etc/group")
"""In namespaces it has its own."""
_MINE = "/dev/shm"


def environment(command: Command) -> dict[str, str]:
    """Of the command: nothing of the gateway's."""
    temporary = TEMPORARY if command.tier is Tier.NAMESPACES else command.scratch
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": HOME if command.tier is Tier.NAMESPACES else command.scratch,
        "TMPDIR": temporary,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        **command.environment,
    }


def root_of(command: Command) -> str:
    """Where the workspace is for the command."""
    return WORKSPACE if command.tier is Tier.NAMESPACES else command.workspace


def access(command: Command) -> Mapping[str, Access]:
    """For Landlock, of the paths as the command sees them."""
    devices, root = dict.fromkeys(DEVICES, Access.DEVICE), root_of(command)
    if command.tier is Tier.NAMESPACES:
        # Its root holds nothing else; what is read-only or hidden in the workspace, a mount makes so.
        return {"/": Access.RUN, **devices, **dict.fromkeys((root, HOME, TEMPORARY, _MINE), Access.WORK)}
    system = dict.fromkeys((*PROGRAMS, *SETTINGS, *_ACCOUNTS, *command.reads), Access.RUN)
    machine = dict.fromkeys(_ABOUT_MACHINE, Access.READ)
    return {**system, **devices, **machine, **dict(_entries(command)), command.scratch: Access.WORK}


def _entries(command: Command, folder: str = "") -> Iterator[tuple[str, Access]]:
    """Each entry by itself where something beside it is closed, as rights to a folder hold for all beneath it."""
    with suppress(OSError), os.scandir(os.path.join(command.workspace, folder)) as entries:
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if path in command.hidden or entry.is_symlink():
                continue
            if path in command.read_only:
                yield entry.path, Access.RUN
            elif any(each.startswith(f"{path}/") for each in command.read_only):
                yield entry.path, Access.READ
                yield from _entries(command, path)
            else:
                yield entry.path, Access.WORK
