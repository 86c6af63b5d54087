"""A newer version in a git checkout: a real repository, with a `make setup` of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.app.checks import CheckContext
from gateway.app.checks.installation import check_update
from gateway.app.installation import Checkout, Version, start_update
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.domain.health import Finding, FindingLevel

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


def test_doctor_tells_of_a_higher_version_if_it_may_look(upstream: Path, checkout: Checkout, tmp_path: Path) -> None:
    def told(config: Config, find: Callable[[], Checkout] = lambda: checkout) -> list[Finding]:
        return list(check_update(CheckContext(Environment.read({}), {}, config), find))

    def kept_by_another() -> Checkout:
        raise OwnerMustAct("`pipx upgrade supaclaw` updates it")

    looks = Config.model_validate({"update": {"check": True}})
    assert [each.text for each in told(looks)] == ["this is the newest version"]
    release(upstream, "99.9.0")
    assert told(Config()) == []
    [newer] = told(looks)
    assert (newer.level, newer.text) == (FindingLevel.WARN, "version 99.9.0 is available")
    [elsewhere] = told(looks, kept_by_another)
    assert (elsewhere.level, elsewhere.fix) == (FindingLevel.OK, "`pipx upgrade supaclaw` updates it")
    upstream.rename(tmp_path / "away")
    [unreachable] = told(looks)
    assert unreachable.level is FindingLevel.OK
    assert "no newer version was looked for" in unreachable.text
    assert "upstream' does not" in unreachable.fix


def test_an_update_begins_beside_the_gateway_but_not_under_systemd_which_would_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INVOCATION_ID", "x")
    with pytest.raises(OwnerMustAct, match="run `supaclaw update` in a terminal"):
        start_update(tmp_path)
    monkeypatch.delenv("INVOCATION_ID")
    started = start_update(tmp_path, (sys.executable, "-c", "import os, sys; print(sys.argv[1], os.getsid(0))"))
    assert started.wait(60) == 0
    assert (tmp_path / "update.log").read_text() == f"update {started.pid}\n"
