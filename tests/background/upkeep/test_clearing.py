import os
from datetime import timedelta
from pathlib import Path

from gateway.background.upkeep.housekeeping import Retention
from gateway.config.machine import SystemClock
from gateway.config.model import Retention as RetentionSettings
from tests.store.test_retention import OLD, over
from tests.store.world import World


def clears(world: World, folder: Path, keep: timedelta | None = timedelta(days=90)) -> Retention:
    settings = RetentionSettings.model_construct(keep=keep, thinking=keep)
    return Retention(world.database, folder, lambda: settings, SystemClock())


async def test_all_that_is_old_goes_with_the_files_of_its_tree(world: World, tmp_path: Path) -> None:
    for _ in range(3):
        task = await over(world, OLD)
        (tmp_path / str(task) / "node").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    await clears(world, tmp_path).run()
    assert os.listdir(tmp_path) == ["mine"]
    assert await world.value("select count(*) from tasks") == 0


async def test_without_a_limit_nothing_goes(world: World, tmp_path: Path) -> None:
    await over(world, OLD)
    await clears(world, tmp_path, None).run()
    assert await world.value("select count(*) from tasks") == 1


async def test_a_link_in_the_place_of_the_folder_leads_nowhere(world: World, tmp_path: Path) -> None:
    task = await over(world, OLD)
    (tmp_path / "elsewhere" / str(task)).mkdir(parents=True)
    (tmp_path / "tasks").symlink_to(tmp_path / "elsewhere")
    await clears(world, tmp_path / "tasks").run()
    assert (tmp_path / "elsewhere" / str(task)).exists()
