"""Finding 11: what the gateway creates is private, wherever it lies, and doctor names what is not."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.app.checks.installation import check_folders
from gateway.workspace.checkpoints import jobs
from tests.app.checks.contexts import examine_with, put
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.ingest.samples import pdf
from tests.journeys.process import OWNER, GatewayProcess, configured


@pytest.fixture
def careless() -> Iterator[None]:
    """A login whose files everybody in its group may write, as some distributions set it up."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def shared(*roots: Path) -> dict[str, int]:
    """What others may touch, with its mode; not packs, which dulwich opens within a folder that is closed."""
    modes = {path: path.lstat().st_mode for root in roots for path in (root, *root.rglob("*")) if not path.is_symlink()}
    return {str(path): stat.S_IMODE(mode) for path, mode in modes.items() if mode & 0o077 and path.suffix != ".pack"}


@pytest.mark.usefixtures("careless")
async def test_all_that_a_gateway_creates_is_private(tmp_path: Path) -> None:
    outside, home = tmp_path / "outside", tmp_path / "home"
    team = put(outside / "team.md", "old", 0o664)
    outside.chmod(0o775)
    calls = (
        Call("write_file", {"path": "notes/deep/a.md", "content": "new"}),
        Call("write_file", {"path": "team.md", "content": "new"}),
    )
    process = GatewayProcess(home, environ={"SUPACLAW_WORKSPACE": str(outside)})
    home.mkdir()
    async with FakeTelegram() as telegram, FakeModels(Rule("mk1x", tool_calls=calls)) as models:
        process.configure(configured(telegram, models))
        try:
            await process.start()
            lease = {**telegram.keep(pdf("Rent.")), "file_name": "lease.pdf", "mime_type": "application/pdf"}
            telegram.say(None, OWNER, document=lease, caption="mk1x")
            await telegram.wait_for(lambda tg: any("fin1x" in sent.text for sent in tg.sent), 90)
            done = [await process.command(*line.split()) for line in ("checkpoints create", "backup saved.tar.gz")]
        finally:
            await process.close()

    assert [each.code for each in done] == [0, 0]
    assert (outside / "notes/deep/a.md").read_text() == team.read_text() == "new"
    assert list(outside.glob("uploads/*/lease.pdf.txt"))
    assert shared(outside, process.data, home / "saved.tar.gz") == {str(outside): 0o775, str(team): 0o664}


def test_a_checkpoint_restores_a_shared_file_shared_and_makes_a_new_one_private(tmp_path: Path) -> None:
    root, store = tmp_path / "workspace", str(tmp_path / "store")
    team, gone = put(root / "team.md", "one", 0o664), put(root / "notes" / "gone.md", "one", 0o664)
    id = str(jobs.commit(str(root), store, None, "asked")["id"])
    team.write_text("two")
    gone.unlink()
    gone.parent.rmdir()
    before = os.umask(0o077)
    try:
        jobs.restore(str(root), store, id, None, None)
    finally:
        os.umask(before)

    assert team.read_text() == "one"
    assert shared(team, gone, gone.parent) == {str(team): 0o664}


@pytest.mark.parametrize(
    ("path", "mode", "fix"),
    [
        ("data", 0o750, "chmod 700 {}"),
        ("data/backups/upgrade-6-to-7.tar.gz", 0o640, "chmod 600 {}"),
        (".env", 0o644, "chmod 600 {}"),
        ("files of mine", 0o755, "chmod -R o= '{}'"),
    ],
)
def test_doctor_names_what_others_can_read_and_how_to_close_it(tmp_path: Path, path: str, mode: int, fix: str) -> None:
    put(tmp_path / "data/backups/upgrade-6-to-7.tar.gz")
    put(tmp_path / ".env")
    put(tmp_path / "files of mine" / "AGENTS.md")
    (tmp_path / path).chmod(mode)
    findings = examine_with(tmp_path)(check_folders, SUPACLAW_WORKSPACE=str(tmp_path / "files of mine"))

    assert [each.fix for each in findings if "can read" in each.text] == [fix.format(tmp_path / path)]


def test_doctor_lets_a_workspace_be_shared_with_a_group(tmp_path: Path) -> None:
    put(tmp_path / "shared" / "AGENTS.md").parent.chmod(0o770)
    findings = examine_with(tmp_path)(check_folders, SUPACLAW_WORKSPACE=str(tmp_path / "shared"))

    assert not [each for each in findings if "can read" in each.text]
