"""The installer, against a stand-in for OpenClaw; `make test-openclaw` repeats it with the real one."""

import json
import re
import stat

import pytest

from integrations.openclaw.installer.state import Step
from tests.cli.conftest import Supaclaw
from tests.cli.test_memories import store_secret
from tests.integrations.openclaw.conftest import BEFORE, Installation, mounted

MOST_KILLS = 60


def test_an_installation_and_its_removal(installation: Installation, supaclaw: Supaclaw) -> None:
    before = installation.snapshot()

    done = installation.act("install")

    assert (done.code, done.err) == (0, "")
    assert "Imported: 2 memories, 1 session, 2 tasks, 1 learning" in done.out
    assert done.out.endswith("Installation complete. Restart your gateway.\n")
    assert installation.settings == {
        "gateway": {"port": 1},
        "plugins": {
            "allow": ["browser", "memory-supaclaw"],
            "entries": {"memory-supaclaw": {"enabled": True, "hooks": {"allowConversationAccess": True}}},
            "slots": {"memory": "memory-supaclaw"},
        },
        "memory": {"search": {"enabled": False}},
        "agents": {"defaults": {"compaction": {"memoryFlush": {"enabled": True}}}},
    }
    record = json.loads(installation.record.read_text())
    assert (record["status"], record["completedSteps"]) == ("complete", [step.value for step in Step])
    assert "SUPACLAW.md" in (installation.workspace / "AGENTS.md").read_text()
    assert (installation.workspace / "skills" / "supaclaw" / "SKILL.md").exists()
    assert installation.act("verify").code == 0
    assert "--force installs it again" in installation.act("install").out
    (token,) = json.loads(supaclaw("token", "list", "--json").out)
    assert (token["agent"], token["scopes"], token["shared"]) == ("openclaw", ["memory"], False)

    removed = installation.act("uninstall")

    assert (removed.code, removed.err) == (0, "")
    assert installation.snapshot() == before
    assert json.loads(supaclaw("token", "list", "--json").out) == []


def test_a_stored_secret_is_imported_by_its_name(installation: Installation, supaclaw: Supaclaw) -> None:
    store_secret("WEATHER_KEY", "quite-secret-4711")
    (installation.workspace / "MEMORY.md").write_text("- The key is quite-secret-4711.\n")

    assert installation.act("install").code == 0

    memories = supaclaw("memories", "export").out
    assert "quite-secret-4711" not in memories
    assert "The key is ${secret:WEATHER_KEY}." in memories


def test_the_token_and_the_backup_are_private_and_printed_nowhere(installation: Installation) -> None:
    done = installation.act("install")

    connection = installation.state / "supaclaw" / "connection.json"
    token = json.loads(connection.read_text())["token"]
    backup = installation.workspace / ".supaclaw-backup"
    assert stat.S_IMODE(connection.stat().st_mode) == 0o600
    assert stat.S_IMODE(connection.parent.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in backup.rglob("*") if path.is_file()} == {0o600}
    holders = [path for path in installation.home.rglob("*") if path.is_file() and token in path.read_text()]
    assert holders == [connection]
    assert token not in done.out + done.err


@pytest.mark.thorough
@pytest.mark.parametrize("of", ["install", "uninstall"])
def test_a_kill_anywhere_is_finished_by_the_next_call(installation: Installation, of: str) -> None:
    before = installation.snapshot()
    for n in range(1, MOST_KILLS, 8):  # every place is `make test-openclaw`'s
        if of == "uninstall":
            assert installation.act("install").code == 0
        code = installation.killed(of, n, "--hooks") if of == "install" else installation.killed(of, n)
        if code == 0:
            break
        assert code == -9
        for command in ("install", "uninstall")[of == "uninstall" :]:
            done = installation.act(command)
            assert (done.code, done.err) == (0, ""), n
        assert installation.snapshot() == before, n
    else:
        pytest.fail("it never ends")


def test_an_interrupted_installation_can_be_taken_out_at_once(installation: Installation) -> None:
    before = installation.snapshot()
    assert installation.killed("install", 9) == -9

    assert installation.act("uninstall").code == 0

    assert installation.snapshot() == before


@pytest.mark.thorough
def test_a_second_installation_that_is_refused_takes_nothing_from_the_first(installation: Installation) -> None:
    assert installation.act("install").code == 0
    second = [installation.home / name for name in ("ws2", "state2")]
    for folder in second:
        folder.mkdir()
    (second[1] / "openclaw.json").write_text(BEFORE)
    arguments = ("install", "--workspace", str(second[0]), "--state", str(second[1]), "--yes")

    refused = installation.supaclaw(*arguments)

    assert refused.code == 1
    assert 'a token "openclaw openclaw" exists already; revoke it, or choose another name by --agent' in refused.err
    assert installation.act("verify").code == 0
    assert installation.supaclaw(*arguments, "--agent", "nix").code == 0
    names = [token["name"] for token in json.loads(installation.supaclaw("token", "list", "--json").out)]
    assert names == ["openclaw nix", "openclaw openclaw"]
    assert installation.act("uninstall").code == 0
    (left,) = json.loads(installation.supaclaw("token", "list", "--json").out)
    assert left["name"] == "openclaw nix"


def test_with_hooks_those_that_ran_go_on_running(installation: Installation) -> None:
    installation.config.write_text('{"hooks": {"internal": {"enabled": true}}}')
    before = installation.snapshot()

    assert installation.act("install", "--hooks").code == 0

    assert set(installation.settings["hooks"]["internal"]["entries"]) == {
        "boot-md",
        "supaclaw-logger",
        "supaclaw-bootstrap",
    }
    assert installation.settings["plugins"]["entries"]["memory-supaclaw"]["config"] == {
        "log": False,
        "bootstrap": False,
    }
    assert (installation.state / "hooks" / "supaclaw-logger" / "HOOK.md").exists()
    assert installation.act("uninstall").code == 0
    assert installation.snapshot() == before


def test_what_was_changed_meanwhile_stays(installation: Installation) -> None:
    assert installation.act("install").code == 0
    settings = installation.settings
    settings["gateway"]["port"] = 2
    installation.config.write_text(json.dumps(settings))
    guide = installation.workspace / "SUPACLAW.md"
    guide.write_text("mine")
    agents = installation.workspace / "AGENTS.md"
    agents.write_text(agents.read_text() + "more")

    done = installation.act("uninstall")

    assert done.code == 0
    assert "SUPACLAW.md was changed since; it stays" in done.out
    assert installation.settings == {"gateway": {"port": 2}, "plugins": {"allow": ["browser"]}}
    assert (guide.read_text(), agents.read_text()) == ("mine", "# Me\n\nNo newline at the endmore")


def test_a_dry_run_changes_nothing(installation: Installation, supaclaw: Supaclaw) -> None:
    before = installation.snapshot()

    done = installation.act("install", "--dry-run")

    assert "Would import: 2 memories" in done.out
    assert "Would set plugins.slots.memory" in done.out
    assert installation.snapshot() == before
    assert json.loads(supaclaw("token", "list", "--json").out) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("version", "rejects", "status", "why"),
    [
        ("tsc 5.1", [], "loaded", "verify_prereqs: .* is not a supported version of OpenClaw"),
        ("2026.8.2", [], "loaded", "verify_prereqs: OpenClaw 2026.8.2 is too old; the plugin needs 2026.9.0 or newer"),
        ("2026.9.6", ["gateway"], "loaded", "verify_prereqs: OpenClaw rejects its own settings"),
        ("2026.9.6", ["memory-supaclaw"], "loaded", "install_plugin: OpenClaw rejects the settings"),
        ("2026.9.6", ["memorySearch"], "error", "verify: OpenClaw did not load memory-supaclaw"),
    ],
)
def test_what_openclaw_does_not_take_leaves_nothing(
    installation: Installation, supaclaw: Supaclaw, version: str, rejects: list[str], status: str, why: str
) -> None:
    before = installation.snapshot()
    installation.says(version=version, rejects=rejects, status=status)

    done = installation.act("install")

    assert done.code == 1
    assert re.search(why, done.err)
    assert done.err.count("\n") == 1
    assert installation.snapshot() == before
    assert json.loads(supaclaw("token", "list", "--json").out) == []


@pytest.mark.parametrize(
    ("filled_at", "step"),
    [("memory-supaclaw", "install_plugin"), ("memoryFlush", "configure_flush")],
)
def test_a_disk_that_fills_up_in_the_middle_leaves_nothing(
    small_disk: None, installation: Installation, filled_at: str, step: str
) -> None:
    before = installation.snapshot()
    installation.says(fills=filled_at)

    done = installation.act("install")

    assert done.code == 1
    assert re.search(f"{step}: .*: No space left on device. Everything is as it was before; make room", done.err)
    assert done.err.count("\n") == 1
    assert installation.snapshot() == before


def test_a_workspace_that_may_not_be_written_is_told_before_anything_is(installation: Installation) -> None:
    with mounted(installation.workspace, "ro"):
        done = installation.act("install")

        assert done.code == 1
        assert f"{installation.workspace} cannot be written; make it writable" in done.err
        assert done.err.count("\n") == 1


def test_what_a_kill_left_of_a_file_goes_too(installation: Installation) -> None:
    before = installation.snapshot()
    assert installation.act("install").code == 0
    for path in (installation.config, installation.workspace / "AGENTS.md", installation.workspace / "SUPACLAW.md"):
        path.with_name(f"{path.name}.new").write_text("half")

    assert installation.act("uninstall").code == 0

    assert installation.snapshot() == before


def test_what_cannot_be_begun_is_refused_in_a_line(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    before = installation.snapshot()
    (installation.workspace / "skills" / "supaclaw").mkdir(parents=True)
    assert "skills/supaclaw exists already and is not from this installer" in installation.act("install").err
    (installation.workspace / "skills" / "supaclaw").rmdir()
    (installation.workspace / "skills").rmdir()
    assert "SupaClaw is not installed in" in installation.act("uninstall").err
    assert "run `supaclaw openclaw install`" in installation.act("verify").err
    assert "nowhere is not a folder" in installation.supaclaw("install", "--workspace", "nowhere").err
    installation.record.write_text('{"version": 9}')
    for command in ("install", "uninstall"):
        assert "was changed by hand" in installation.act(command).err
    installation.record.unlink()
    config = installation.config.rename(installation.home / "elsewhere")
    assert "openclaw.json does not exist; run `openclaw setup` first" in installation.act("install").err
    config.rename(installation.config)
    arguments = ("--workspace", str(installation.workspace), "--state", "nowhere")
    assert "OpenClaw has no state in" in installation.supaclaw("install", *arguments).err
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no `openclaw` on PATH" in installation.act("install").err
    assert installation.snapshot() == before


def test_a_damaged_state_file_does_not_prevent_removal(installation: Installation) -> None:
    before = installation.snapshot()
    assert installation.act("install").code == 0
    installation.record.write_text("?")

    assert installation.act("uninstall", "--force").code == 0

    assert installation.snapshot() == before


def test_a_forged_backup_restores_nothing(installation: Installation) -> None:
    assert installation.act("install").code == 0
    (installation.workspace / ".supaclaw-backup" / "openclaw.json").write_text(BEFORE.replace("port: 1", "port: 666"))

    done = installation.act("uninstall")

    assert done.code == 1
    assert "openclaw.json was changed" in done.err
    assert "666" not in installation.config.read_text()


def test_the_database_is_tested(installation: Installation) -> None:
    done = installation.supaclaw("test")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("The database works: PostgreSQL ")
