"""A newer version in a git checkout: a real repository, with a `make setup` of its own."""

import subprocess
from pathlib import Path

import pytest

from gateway.cli.process.installation import Checkout, Version
from gateway.domain.errors import OwnerMustAct

MAKEFILE = "setup:\n\t@mkdir -p .venv/bin && cp version .venv/bin/python\n"
BROKEN = "setup:\n\t@echo no room >&2; exit 1\n"


def git(folder: Path, *arguments: str) -> None:
    person = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True)


def release(folder: Path, version: str, makefile: str = MAKEFILE) -> None:
    (folder / "Makefile").write_text(makefile)
    (folder / "version").write_text(version)
    (folder / ".gitignore").write_text(".venv\nbuild\n")
    git(folder, "add", "--all")
    git(folder, "commit", "-m", version)
    git(folder, "tag", f"v{version}")


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    (folder := tmp_path / "upstream").mkdir()
    git(folder, "init", "--initial-branch=main")
    release(folder, "0.0.1")
    return folder


@pytest.fixture
def checkout(upstream: Path, tmp_path: Path) -> Checkout:
    git(tmp_path, "clone", str(upstream), "mine")
    return Checkout(tmp_path / "mine")


def test_the_highest_tag_is_installed_beside_used_and_given_up(upstream: Path, checkout: Checkout) -> None:
    assert checkout.newest() is None
    release(upstream, "99.9.0")
    release(upstream, "99.10.0")
    git(upstream, "tag", "nightly")
    newer = checkout.newest()
    assert newer == Version("99.10.0", "v99.10.0")

    beside, *_ = checkout.install(newer)
    assert Path(beside).read_text() == "99.10.0"
    assert (checkout.root / "version").read_text() == "0.0.1"
    used, *_ = checkout.use(newer)
    assert Path(used).read_text() == (checkout.root / "version").read_text() == "99.10.0"
    before, *_ = checkout.go_back()
    assert Path(before).read_text() == "0.0.1"


def test_one_that_cannot_be_set_up_leaves_nothing_behind(upstream: Path, checkout: Checkout) -> None:
    release(upstream, "99.0.0", BROKEN)
    newer = checkout.newest()
    assert newer is not None
    with pytest.raises(OwnerMustAct):
        checkout.install(newer)
    assert not (checkout.root / "build" / "update").exists()
    assert (checkout.root / "version").read_text() == "0.0.1"


def test_changes_of_ones_own_are_not_overwritten(checkout: Checkout) -> None:
    (checkout.root / "version").write_text("mine")
    with pytest.raises(OwnerMustAct, match="changes of yours"):
        checkout.newest()
