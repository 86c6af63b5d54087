import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import uvloop

from gateway.background.cpu import child
from gateway.background.cpu.executor import Cpu, CpuJobFailed, child_environment
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from tests.background import cpu_jobs

ROOT = Path(__file__).parents[3]
SECONDS = 30.0


@pytest.fixture
async def cpu() -> AsyncIterator[Cpu]:
    cpu = Cpu()
    yield cpu
    await cpu.close()


async def written(mark: Path) -> int:
    """The process that has written it."""
    await asyncio.to_thread(until, lambda: mark.exists() and mark.read_text())
    return int(await asyncio.to_thread(mark.read_text))


async def gone(pid: int) -> None:
    await asyncio.to_thread(until, lambda: not alive(pid))


def alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestJobs:
    async def test_a_job_runs_in_another_process_and_answers(self, cpu: Cpu) -> None:
        assert await cpu.run(cpu_jobs.double, 21, seconds=SECONDS) == 42
        assert await cpu.run(cpu_jobs.process_id, seconds=SECONDS) != os.getpid()

    async def test_what_goes_in_comes_out_whatever_its_size(self, cpu: Cpu) -> None:
        value = {"text": "grüße \udc80 \0", "large": "x" * 3_000_000, "list": [1, 2.5, None, True]}
        assert await cpu.run(cpu_jobs.echo, value, seconds=SECONDS) == value

    async def test_jobs_share_one_process_and_run_one_after_another(self, cpu: Cpu) -> None:
        ids = await asyncio.gather(*(cpu.run(cpu_jobs.process_id, seconds=SECONDS) for _ in range(10)))
        assert len(set(ids)) == 1

    async def test_what_a_job_prints_is_no_reply(self, cpu: Cpu) -> None:
        assert await cpu.run(cpu_jobs.chatty, seconds=SECONDS) == "reply"
        assert await cpu.run(cpu_jobs.input_of_its_own, seconds=SECONDS) == ""
        assert await cpu.run(cpu_jobs.double, 1, seconds=SECONDS) == 2

    async def test_the_process_gives_way_and_carries_nothing_it_does_not_need(self, cpu: Cpu) -> None:
        assert await cpu.run(cpu_jobs.facts, seconds=SECONDS) == {
            "nice": min(19, os.nice(0) + child.NICENESS),
            "interrupt ignored": True,
            "cwd": "/",
            "loaded": [],
        }

    async def test_more_jobs_than_may_wait_are_refused(self, tmp_path: Path) -> None:
        cpu = Cpu(waiting=1)
        running = asyncio.create_task(cpu.run(cpu_jobs.hang, str(tmp_path / "mark"), seconds=SECONDS))
        await written(tmp_path / "mark")
        waits = asyncio.create_task(cpu.run(cpu_jobs.double, 1, seconds=SECONDS))
        await asyncio.sleep(0)
        with pytest.raises(TryAgainLater, match="too many jobs"):
            await cpu.run(cpu_jobs.double, 2, seconds=SECONDS)
        running.cancel()
        assert await waits == 2
        await cpu.close()

    async def test_a_function_that_another_process_cannot_find_is_refused(self, cpu: Cpu) -> None:
        for function in (lambda: None, cpu_jobs.Holder.method):
            with pytest.raises(TypeError, match="not at the top of a module"):
                await cpu.run(function, seconds=SECONDS)


class TestFailures:
    async def test_a_defect_is_told_in_a_line(self, cpu: Cpu) -> None:
        with pytest.raises(CpuJobFailed, match=r"^broken failed: ValueError: the file is no picture$"):
            await cpu.run(cpu_jobs.broken, seconds=SECONDS)
        assert await cpu.run(cpu_jobs.double, 1, seconds=SECONDS) == 2

    async def test_what_the_owner_must_do_and_what_may_work_later_stay_what_they_are(self, cpu: Cpu) -> None:
        with pytest.raises(OwnerMustAct, match=r"^mend it$"):
            await cpu.run(cpu_jobs.refused, seconds=SECONDS)
        with pytest.raises(TryAgainLater, match=r"^not now$"):
            await cpu.run(cpu_jobs.later, seconds=SECONDS)

    async def test_a_crash_kills_only_the_child(self, cpu: Cpu) -> None:
        with pytest.raises(CpuJobFailed, match=r"crash failed: .*signal 11"):
            await cpu.run(cpu_jobs.crash, seconds=SECONDS)
        assert await cpu.run(cpu_jobs.double, 1, seconds=SECONDS) == 2

    async def test_a_job_gets_no_more_memory_than_it_may_take(self, cpu: Cpu) -> None:
        with pytest.raises(CpuJobFailed, match="needs more memory"):
            await cpu.run(cpu_jobs.hog, 600 * 1024**2, seconds=SECONDS, memory=512 * 1024**2)
        assert await cpu.run(cpu_jobs.hog, 600 * 1024**2, seconds=SECONDS, memory=2 * 1024**3) == 600 * 1024**2

    @pytest.mark.parametrize("job", [cpu_jobs.hang, cpu_jobs.spin])
    async def test_a_job_that_takes_too_long_is_ended(self, cpu: Cpu, tmp_path: Path, job: object) -> None:
        assert callable(job)
        with pytest.raises(CpuJobFailed, match=r"took longer than 0.5 seconds"):
            await cpu.run(job, str(tmp_path / "mark"), seconds=0.5)
        assert await cpu.run(cpu_jobs.double, 1, seconds=SECONDS) == 2

    async def test_an_answer_that_is_no_json_is_a_defect(self, cpu: Cpu) -> None:
        with pytest.raises(CpuJobFailed, match="TypeError"):
            await cpu.run(cpu_jobs.no_json, seconds=SECONDS)

    async def test_an_answer_beyond_the_limit_is_not_read(self, cpu: Cpu, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gateway.background.cpu.executor.MAX_REPLY_BYTES", 100)
        with pytest.raises(CpuJobFailed, match="more than is taken"):
            await cpu.run(cpu_jobs.echo, "x" * 200, seconds=SECONDS)
        assert await cpu.run(cpu_jobs.double, 1, seconds=SECONDS) == 2


class TestEnds:
    async def test_who_gives_up_waiting_leaves_a_clean_process_to_the_next(self, cpu: Cpu, tmp_path: Path) -> None:
        job = asyncio.create_task(cpu.run(cpu_jobs.hang, str(tmp_path / "mark"), seconds=SECONDS))
        pid = await written(tmp_path / "mark")
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert not psutil.pid_exists(pid)
        assert await cpu.run(cpu_jobs.double, 1, seconds=SECONDS) == 2

    async def test_who_gives_up_in_the_queue_disturbs_nobody(self, cpu: Cpu) -> None:
        jobs = [asyncio.create_task(cpu.run(cpu_jobs.process_id, seconds=SECONDS)) for _ in range(3)]
        await asyncio.sleep(0)
        jobs[1].cancel()
        first, given_up, third = await asyncio.gather(*jobs, return_exceptions=True)
        assert first == third
        assert isinstance(given_up, asyncio.CancelledError)

    async def test_after_some_idle_time_the_process_is_gone(self) -> None:
        cpu = Cpu(idle_seconds=0.01)
        pid = await cpu.run(cpu_jobs.process_id, seconds=SECONDS)
        assert isinstance(pid, int)
        await gone(pid)
        assert await cpu.run(cpu_jobs.process_id, seconds=SECONDS) != pid
        await cpu.close()

    def test_it_goes_on_in_the_gateways_own_event_loop(self) -> None:
        async def twice() -> list[object]:
            cpu = Cpu()
            found: list[object] = [await cpu.run(cpu_jobs.process_id, seconds=SECONDS) for _ in range(2)]
            await cpu.close()
            return found

        first, second = uvloop.run(twice())
        assert first == second

    async def test_closing_ends_a_job_under_way(self, cpu: Cpu, tmp_path: Path) -> None:
        job = asyncio.create_task(cpu.run(cpu_jobs.hang, str(tmp_path / "mark"), seconds=SECONDS))
        pid = await written(tmp_path / "mark")
        await cpu.close()
        with pytest.raises(TryAgainLater, match="the gateway is stopping"):
            await job
        assert not psutil.pid_exists(pid)

    async def test_closing_what_never_ran_does_nothing(self) -> None:
        cpu = Cpu()
        await cpu.close()
        await cpu.close()

    @pytest.mark.parametrize("job", ["hang", "spin"])
    async def test_the_child_dies_with_its_parent_in_the_middle_of_a_job(self, tmp_path: Path, job: str) -> None:
        parent = f"""
import asyncio
from gateway.background.cpu.executor import Cpu
from tests.background import cpu_jobs
asyncio.run(Cpu().run(cpu_jobs.{job}, {str(tmp_path / "mark")!r}, seconds=60))
"""
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, cwd=ROOT)
        child = await written(tmp_path / "mark")
        process.kill()
        await process.wait()
        await gone(child)


class TestEnvironment:
    def test_only_what_is_allowed_is_handed_on(self) -> None:
        given = {
            "PATH": "/bin",
            "HOME": "/root",
            "LC_ALL": "C",
            "OPENAI_API_KEY": "sk-1",
            "TELEGRAM_TOKEN": "1:2",
            "SUPACLAW_DATABASE_URL": "postgres://u:p@h/d",
            "LD_PRELOAD": "x.so",
        }
        kept = {"PATH": "/bin", "HOME": "/root", "LC_ALL": "C"}
        assert child_environment(given) == kept | {"PYTHONPATH": str(ROOT), "ORT_DISABLE_TELEMETRY": "1"}

    async def test_the_child_sees_no_secret(self, cpu: Cpu, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        seen = await cpu.run(cpu_jobs.environment, seconds=SECONDS)
        assert "sk-secret" not in str(seen)
        assert isinstance(seen, dict)
        assert "PATH" in seen
