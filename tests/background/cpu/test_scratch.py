from pathlib import Path

from gateway.background.cpu.executor import ScratchFolder


async def test_what_a_killed_process_left_is_deleted_at_the_first_use(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    (path / "left").mkdir(parents=True)
    scratch = ScratchFolder(path)
    async with scratch.new() as first, scratch.new() as second:
        assert first != second
        assert sorted(path.iterdir()) == sorted([first, second])
    assert list(path.iterdir()) == []
