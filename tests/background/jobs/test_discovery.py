"""A file in the folder of jobs is a kind of task: nothing else names it."""

import sys
from pathlib import Path

import pytest

from gateway.background import jobs
from gateway.domain.errors import OwnerMustAct
from gateway.domain.work.tasks import Lane
from gateway.store.work import tasks
from tests.flow.path import MessagePath

WAVE = """
from gateway.domain.work.tasks import Status
from gateway.store.work import tasks

class Wave:
    def __init__(self, parts):
        self._database = parts.engine.database

    async def run(self, run):
        await self._database.run(lambda tx: tasks.finish(tx, run, Status.COMPLETED))

    async def give_up(self, run): ...

runner = Wave
"""


def here(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """The folder of jobs has one file, `wave.py`."""
    (folder / "wave.py").write_text(source)
    monkeypatch.setattr(jobs, "__path__", [str(folder)])
    monkeypatch.delitem(sys.modules, "gateway.background.jobs.wave", raising=False)


def test_every_file_is_a_kind(path: MessagePath) -> None:
    files = Path(jobs.__file__).parent.glob("*.py")
    assert set(jobs.discover(path.parts.work.parts)) == {file.stem for file in files} - {"__init__"}


async def test_a_new_file_is_a_new_kind(path: MessagePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(tmp_path, monkeypatch, WAVE)
    async with path.database.transaction() as tx:
        await tasks.create(tx, path.people.owner.id, "wave", Lane.AGENTS)
    runners = jobs.discover(path.parts.work.parts)
    await runners["wave"].run(await path.claim(Lane.AGENTS))
    assert await path.rows("select status from tasks where kind = 'wave'") == [("completed",)]


@pytest.mark.parametrize("source", ["import no_such_module", "runner = None", ""])
def test_a_file_that_is_no_job_is_named(
    path: MessagePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    here(tmp_path, monkeypatch, source)
    with pytest.raises(OwnerMustAct, match=r"gateway\.background\.jobs\.wave"):
        jobs.discover(path.parts.work.parts)
