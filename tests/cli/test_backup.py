"""`supaclaw backup` and `supaclaw restore`, as one types them; what is in an archive is tested beside it."""

import json
from pathlib import Path

import pytest

from gateway.config.data.instance import hold_instance
from tests.cli.conftest import Supaclaw

KEY = "sk-planted-0123456789abcdef"


@pytest.fixture
def lived_in(supaclaw: Supaclaw, place: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gateway with an owner, a configuration and a file."""
    config = {"owner": {"name": "Ada"}, "models": {"providers": {"openai": {"api_key": KEY}}}}
    (place / "config.json").write_text(json.dumps(config))
    (place / "data/workspace").mkdir(parents=True)
    (place / "data/workspace/AGENTS.md").write_text("Be kind.")
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "77")
    return place


@pytest.fixture
def elsewhere(lived_in: Path, empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A backup in `a.tar.gz`, and from here on an empty home."""
    home = lived_in / "elsewhere"
    home.mkdir()
    monkeypatch.setenv("SUPACLAW_CONFIG", str(home / "config.json"))
    monkeypatch.setenv("SUPACLAW_DATA", str(home / "data"))
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", empty_dsn)
    return home


def test_a_backup_says_what_is_in_it_and_what_is_not(supaclaw: Supaclaw, lived_in: Path) -> None:
    (lived_in / "data/workspace/out").symlink_to("/etc")

    done = supaclaw("backup", "a.tar.gz")

    assert (done.code, done.err) == (0, "")
    first, skipped, secrets = done.out.splitlines()
    assert first.startswith("a.tar.gz: 3 rows and 2 files, ")
    assert skipped.startswith("1 entries were skipped: links that point outside")
    assert secrets == "secrets not included: models.providers.openai.api_key"


def test_one_with_secrets_says_so(supaclaw: Supaclaw, lived_in: Path) -> None:
    assert lived_in.exists()

    assert "it contains secrets" in supaclaw("backup", "a.tar.gz", "--with-secrets").out


def test_without_a_gateway_there_is_nothing_to_save(supaclaw: Supaclaw, place: Path) -> None:
    done = supaclaw("backup", "a.tar.gz")

    assert done.code == 1
    assert "there is no gateway in" in done.err
    assert not (place / "data").exists()


def test_it_is_put_back_elsewhere(supaclaw: Supaclaw, lived_in: Path, request: pytest.FixtureRequest) -> None:
    supaclaw("backup", "a.tar.gz")
    home: Path = request.getfixturevalue("elsewhere")

    done = supaclaw("restore", "a.tar.gz")

    assert done.code == 0
    assert done.out.startswith("restored 3 rows and 2 files, saved ")
    assert f"put these into {home / 'config.json'} before you start: models.providers.openai.api_key" in done.out
    assert (home / "data/workspace/AGENTS.md").read_text() == "Be kind."
    (home / "config.json").unlink()
    [owner] = supaclaw("owner", "show", "--json").json
    assert owner["identities"] == ["telegram:77"]
    assert (lived_in / "data/workspace/AGENTS.md").exists()


def test_a_login_comes_along_with_what_to_do_if_it_is_old(
    supaclaw: Supaclaw, lived_in: Path, request: pytest.FixtureRequest
) -> None:
    folder = lived_in / "data/channels/whatsapp"
    folder.mkdir(parents=True)
    (folder / "account.json").write_text("{}")
    (folder / "session.sqlite").touch()
    supaclaw("backup", "a.tar.gz", "--with-secrets")
    request.getfixturevalue("elsewhere")

    assert supaclaw("restore", "a.tar.gz").out.splitlines()[1:] == [
        "whatsapp is linked by the keys in the backup; if the old gateway ran after it, link it again: "
        "`supaclaw channel logout whatsapp`, then `supaclaw channel login whatsapp`"
    ]


def test_a_configuration_that_is_there_stays(
    supaclaw: Supaclaw, lived_in: Path, request: pytest.FixtureRequest
) -> None:
    assert lived_in.exists()
    supaclaw("backup", "a.tar.gz")
    home: Path = request.getfixturevalue("elsewhere")
    (home / "config.json").write_text('{"models": {"providers": {"openai": {"api_key": "$env:NOT_SET_YET"}}}}')

    done = supaclaw("restore", "a.tar.gz")

    assert done.code == 0
    assert "already exists and was kept" in done.out
    assert "NOT_SET_YET" in (home / "config.json").read_text()
    assert KEY not in (home / "config.restored.json").read_text()


@pytest.mark.parametrize("option", ["--verify", "--dry-run"])
def test_only_looking_changes_nothing(
    supaclaw: Supaclaw, lived_in: Path, request: pytest.FixtureRequest, option: str
) -> None:
    assert lived_in.exists()
    supaclaw("backup", "a.tar.gz")
    home: Path = request.getfixturevalue("elsewhere")

    done = supaclaw("restore", "a.tar.gz", option)

    assert done.out.startswith("a.tar.gz is intact: 3 rows and 2 files, saved ")
    assert list(home.iterdir()) == []


def test_what_stands_in_the_way_is_one_line(supaclaw: Supaclaw, lived_in: Path) -> None:
    supaclaw("backup", "a.tar.gz")

    again = supaclaw("backup", "a.tar.gz")
    here = supaclaw("restore", "a.tar.gz")
    with hold_instance(lived_in / "data"):
        running = supaclaw("restore", "a.tar.gz")

    assert (again.code, here.code, running.code) == (1, 1, 1)
    assert again.err.endswith("choose another name, or replace it with --force\n")
    assert "is not empty (it holds" in here.err
    assert "a gateway already runs on" in running.err
    assert {done.err.count("\n") for done in (again, here, running)} == {1}


def test_a_foreign_file_is_one_line(supaclaw: Supaclaw, place: Path) -> None:
    (place / "a.tar.gz").write_text("hello")

    done = supaclaw("restore", "a.tar.gz")

    assert done.code == 1
    assert "is not a complete SupaClaw backup" in done.err
    assert done.err.count("\n") == 1
