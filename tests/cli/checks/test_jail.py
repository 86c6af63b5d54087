from functools import partial
from pathlib import Path

import pytest

from gateway.cli.checks.jail import check_jail, landlock_version
from tests.cli.checks.patients import Examine, put

NO_EXEC = "this version has no exec tool yet"


def kernel(tmp_path: Path, *, seccomp: bool = True, namespaces: str = "1000") -> str:
    root = tmp_path / "root"
    put(root / "proc" / "self" / "status", "Name:\tx\nSeccomp:\t0\n" if seccomp else "Name:\tx\n")
    put(root / "proc" / "sys" / "user" / "max_user_namespaces", f"{namespaces}\n")
    return str(root)


def test_a_kernel_with_landlock_and_seccomp_offers_a_jail(examine: Examine, tmp_path: Path) -> None:
    (finding,) = examine(partial(check_jail, landlock=lambda: 6), root=kernel(tmp_path))

    assert (finding.level, finding.text) == ("ok", f"Landlock 6, seccomp, user namespaces; {NO_EXEC}")


@pytest.mark.parametrize(
    ("landlock", "seccomp", "missing"), [(0, True, "Landlock"), (6, False, "seccomp"), (0, False, "Landlock, seccomp")]
)
def test_without_one_of_them_no_exec_tool_is_offered(
    examine: Examine, tmp_path: Path, landlock: int, seccomp: bool, missing: str
) -> None:
    (finding,) = examine(partial(check_jail, landlock=lambda: landlock), root=kernel(tmp_path, seccomp=seccomp))

    assert (finding.level, finding.text) == ("warn", f"no {missing}: no exec tool is offered here")
    assert NO_EXEC in finding.fix


@pytest.mark.parametrize(
    ("switch", "value"),
    [
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ],
)
def test_user_namespaces_that_are_forbidden_are_told(examine: Examine, tmp_path: Path, switch: str, value: str) -> None:
    root = kernel(tmp_path)
    put(Path(root) / "proc" / "sys" / switch, value)

    (finding,) = examine(partial(check_jail, landlock=lambda: 6), root=root)

    assert (finding.level, finding.text) == ("ok", f"Landlock 6, seccomp; no user namespaces; {NO_EXEC}")


def test_this_kernel_can_be_asked() -> None:
    assert landlock_version() in range(100)
