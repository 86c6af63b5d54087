"""What this kernel offers to lock a shell command in."""

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from gateway.cli.checks.finding import Finding, Level, Patient

_LANDLOCK_CREATE_RULESET = 444
"""The same on every architecture."""
_ASK_VERSION = 1


def landlock_version() -> int:
    """The version of Landlock's interface; 0 without it. Changes nothing."""
    if platform.system() != "Linux":
        return 0
    with suppress(OSError, AttributeError):
        none = ctypes.c_void_p(None)
        call = ctypes.CDLL(None).syscall
        return max(int(call(ctypes.c_long(_LANDLOCK_CREATE_RULESET), none, ctypes.c_size_t(0), _ASK_VERSION)), 0)
    return 0


def check_jail(patient: Patient, landlock: Callable[[], int] = landlock_version) -> Iterator[Finding]:
    """Landlock and seccomp together make a jail; user namespaces make it tighter."""
    offers = {
        f"Landlock {version}" if (version := landlock()) else "Landlock": bool(version),
        "seccomp": "Seccomp:" in _read(patient.root / "proc/self/status"),
        "user namespaces": _namespaces(patient.root),
    }
    there = ", ".join(name for name, offered in offers.items() if offered)
    missing = ", ".join(name for name, offered in offers.items() if not offered)
    if version and offers["seccomp"]:
        beside = f"; no {missing}" if missing else ""
        yield Finding(Level.OK, "jail", f"{there}{beside}; this version has no exec tool yet")
        return
    fix = "a Linux 5.13 or newer with Landlock and seccomp; all else works without (this version has no exec tool yet)"
    yield Finding(Level.WARN, "jail", f"no {missing}: no exec tool is offered here", fix)


def _namespaces(root: Path) -> bool:
    """Whether a user other than root may make them; what is not forbidden is allowed."""
    system = root / "proc/sys"
    switches = {
        system / "user/max_user_namespaces": "0",
        system / "kernel/unprivileged_userns_clone": "0",
        system / "kernel/apparmor_restrict_unprivileged_userns": "1",
    }
    there = (system / "user/max_user_namespaces").exists()
    return there and all(_read(switch).strip() != off for switch, off in switches.items())


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
