"""What becomes of a file that is closed."""

from pathlib import Path
from typing import Any

import pytest

from gateway.store.pool import Database
from gateway.workspace.journal.writer import JournalWriter
from tests.flow.journal.desk import MEMBER, Desk, arrival, desk


@pytest.fixture
async def here(database: Database, tmp_path: Path) -> Desk:
    return await desk(database, tmp_path)


class Crash(BaseException):
    """The end of the process."""


class TestFiling:
    async def test_a_closed_file_moves_to_memory_and_the_index_grows(self, here: Desk) -> None:
        for number in range(2):
            session = await here.hear(f"question {number}")
            await here.answer(session, f"answer {number}")
            await here.settled()
            opened = here.file.relative_to(here.workspace / "sessions")
            await here.new(summary=f"talk {number}\n→ done")
            await here.settled()
            filed = here.files("memory")[-1]
            assert filed.stem == str(opened).removesuffix(".md").replace("-", "").replace("/", "")
            assert here.said(filed) == [("user", f"question {number}"), ("assistant", f"answer {number}")]
        assert here.files() == []
        index = (here.workspace / "memory" / "INDEX.md").read_text()
        assert index.index("talk 1") < index.index("talk 0")
        assert index.count("· fake ·") == 2
        assert all(f"({file.name})" in index for file in here.files("memory"))
        assert await here.rows("select count(*) from journals where filed_at is not null and path like 'memory/%'") == [
            (2,)
        ]

    async def test_compaction_ends_the_file_and_not_the_session(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        await here.compact(session, "They spoke of one.")
        await here.settled()
        assert await here.hear("two") == session
        await here.settled()
        [filed] = here.files("memory")
        assert here.said(filed)[-1] == ("summary", "They spoke of one.")
        assert here.said(here.file) == [("message", "two")]

    async def test_a_session_that_ended_before_it_had_a_file_is_filed_all_the_same(self, here: Desk) -> None:
        session = await here.store(arrival("one"), None)
        await here.answer(session, "re: one")
        await here.new()
        await here.settled()
        [filed] = here.files("memory")
        assert here.said(filed) == [("user", "one"), ("assistant", "re: one")]
        assert "one (2 messages)" in (here.workspace / "memory" / "INDEX.md").read_text()

    @pytest.mark.parametrize("step", ["copy", "write", "remove"])
    async def test_a_crash_in_between_is_finished_by_the_next_start(
        self, here: Desk, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        await here.new()
        done = getattr(JournalWriter, step)

        async def crashing(self: JournalWriter, *arguments: Any, **more: Any) -> None:
            await done(self, *arguments, **more)
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(JournalWriter, step, crashing)
            with pytest.raises(Crash):
                await here.settled()
        again = await desk(here.database, here.workspace.parent)
        assert await again.journal.unstored() == []
        await again.journal.checked()
        await again.settled()
        [filed] = again.files("memory")
        assert again.said(filed) == [("user", "one"), ("assistant", "re: one")]
        assert again.files() == []
        assert (again.workspace / "memory" / "INDEX.md").read_text().count("\n- ") == 1

    async def test_a_crash_before_anything_was_done_is_finished_too(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        await here.new()
        again = await desk(here.database, here.workspace.parent)
        await again.settled()
        assert [again.said(file) for file in again.files("memory")] == [[("user", "one")]]

    async def test_a_damaged_closed_file_is_filed_from_the_database(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        here.file.write_bytes(b"garbage")
        await here.new()
        await here.settled()
        [filed] = here.files("memory")
        assert here.said(filed) == [("user", "one")]
        assert len(list((here.data / "journal" / "damaged").iterdir())) == 1

    async def test_a_filed_name_that_is_taken_moves_to_the_next_second(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        stamp = str(here.file.relative_to(here.workspace / "sessions"))
        taken = f"memory/{stamp.removesuffix('.md').replace('-', '').replace('/', '')}.md"
        async with here.database.connection() as conn:
            await conn.execute(
                """insert into journals (principal_id, session_id, path, closed_at, filed_at)
                   select principal_id, session_id, $1, now(), now() from journals""",
                taken,
            )
        await here.new()
        await here.settled()
        [filed] = here.files("memory")
        assert f"memory/{filed.name}" > taken
        assert await here.rows("select count(*) from journals where filed_at is not null") == [(2,)]

    async def test_a_members_memory_is_in_their_own_root(self, here: Desk) -> None:
        await here.hear("hello", chat=MEMBER)
        await here.settled()
        await here.new(chat=MEMBER)
        await here.settled()
        assert here.files("memory") == []
        names = sorted(path.name for path in (here.data / "principals").rglob("memory/*.md"))
        assert names[-1] == "INDEX.md"
        assert len(names) == 2
