"""Findings 1 to 4: a command reaches nothing but the workspace, and nothing of it outlives its end.

`make attack` tries every version of Landlock that this kernel can act as.
"""

import os
from pathlib import Path

import pytest

from gateway.sandbox.command import Tier
from tests.sandbox.tiers import confines
from tests.security.workshop.suite import NO_PYTHON, outside, run, shells

pytestmark = pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")


@pytest.mark.thorough
@pytest.mark.parametrize(("tier", "version"), [(Tier.NAMESPACES, 0), (Tier.LANDLOCK, 0), (Tier.LANDLOCK, 1)])
def test_no_attack_succeeds_and_work_goes_on(tier: Tier, version: int) -> None:
    result = run(tier, version, short=True)
    if result.skipped:
        pytest.skip(result.skipped)
    assert [row for row in result.rows if not row[1]] == []
    assert len(result.rows) > 100


@pytest.mark.thorough
@pytest.mark.parametrize("version", [0, -1], ids=["own", "none"])
def test_no_attack_succeeds_through_the_service_of_compose(version: int) -> None:
    result = run(Tier.CONTAINER, version, short=True)
    if result.skipped:
        pytest.skip(result.skipped)
    assert [row for row in result.rows if not row[1]] == []
    assert len(result.rows) > 100


@pytest.mark.thorough
def test_no_attack_on_the_shell_of_virtual_files_succeeds() -> None:
    result = shells(short=True)
    if result.skipped:
        pytest.skip(result.skipped)
    assert [row for row in result.rows if not row[1]] == []
    assert len(result.rows) > 100


@pytest.mark.thorough
@pytest.mark.skipif(os.getuid() != 0, reason="it is about root")
def test_root_is_confined_by_namespaces_alone(tmp_path: Path) -> None:
    result = run(Tier.NAMESPACES, 0, short=True, root=True)
    assert [row for row in result.rows if not row[1]] == []


REFUSED_TO_ANYBODY = {
    "files": {
        "list a home", "make a device", "mount", "chroot", "write a kernel setting", "bound the machine's processes",
        "write /etc", "read passwords", "read the disk", "read kernel messages", "chown it", "type into a terminal",
        "new namespaces", "bind mount", "its memory",
    },
    "calls": {
        "trace", "read another's memory", "take another's descriptor", "its memory by file", "programs for the kernel",
        "performance events", "files by handle", "a copy of the mounts", "an unmount", "another call table",
        "a young call", "a fault in the clock", "another host name", "swap", "accounting", "rings", "page faults",
        "namespaces by clone", "namespaces by clone3", "secret memory", "young attributes", "attributes", "watch files",
        "POSIX message queues",
    },
    "network": {"TCP 6", "raw", "vsock", "packets"},
}  # fmt: skip
"""By the kernel or its settings, here or elsewhere, jail or not: an ordinary user has no right to it."""


@pytest.mark.thorough
def test_without_the_jail_the_attacks_succeed() -> None:
    """Else a refusal shows nothing: a path may be wrong, or an argument."""
    found = outside()
    if found is None:
        pytest.skip(NO_PYTHON)
    known = {f"{kind}: {name}" for kind, names in REFUSED_TO_ANYBODY.items() for name in names}
    assert {name for name, succeeded in found.items() if not succeeded} <= known
    assert sum(found.values()) > 60
