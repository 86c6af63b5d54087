import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from gateway.logs import SecretMask
from gateway.web.screens import logs as screen
from tests.web.conftest import BEARER, Running, Started

ONE, OTHER = "6f2c1f0e-0000-4000-8000-000000000001", "6f2c1f0e-0000-4000-8000-000000000002"


def write(folder: Path, *events: dict[str, object], ago: int = 0) -> None:
    """Lines of a day's log, some of a session's, too."""
    day = datetime.now(UTC).date() - timedelta(days=ago)
    for event in events:
        whole = {"timestamp": f"{day}T12:34:56.000000Z", "level": "info", **event}
        session = event.get("session_id")
        for path in filter(
            None, (folder / f"gateway-{day}.log", session and folder / "sessions" / str(session) / f"{day}.log")
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(whole) + "\n")


async def started(running: Running, folder: Path, **changes: object) -> Started:
    return await running.start(logs=folder, **changes)


@asynccontextmanager
async def following(browser: httpx.AsyncClient, query: str) -> AsyncIterator[AsyncIterator[list[list[str]]]]:
    async with browser.stream("GET", f"/logs/events?{query}") as answer:
        assert answer.status_code == 200

        async def frames() -> AsyncIterator[list[list[str]]]:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

        yield frames()


async def first(browser: httpx.AsyncClient, query: str) -> list[list[str]]:
    async with following(browser, query) as frames:
        return await anext(frames)


def shown(patches: list[list[str]]) -> str:
    return "\n".join(html for what, _, html in patches if what == "insert")


async def test_lines_are_shown_by_level_and_session(running: Running, tmp_path: Path):
    folder = tmp_path / "logs"
    write(
        folder,
        {"event": "one.began", "session_id": ONE, "level": "debug"},
        {"event": "one.failed", "session_id": ONE, "level": "error", "exception": "Traceback\n  <b>boom</b>"},
        {"event": "other.done", "session_id": OTHER, "count": 3},
        {"event": "gateway.ready"},
    )
    gateway = await started(running, folder)
    async with gateway.web.sign_in() as browser:
        everything = await first(browser, "level=debug")
        assert [what for what, *_ in everything] == ["fill", *["insert"] * 4]
        assert "Nothing to show yet" in everything[0][2]
        text = shown(await first(browser, ""))
        assert "one.began" not in text
        assert "count=</i>3" in text
        assert "&lt;b&gt;boom&lt;/b&gt;" in text
        assert f"/logs?session={OTHER}" in text
        assert "gateway.ready" not in shown(await first(browser, "level=error"))
        of_one = shown(await first(browser, f"session={ONE[:8]}-0000-4000-8000-000000000001"))
        assert ("one.failed" in of_one, "other.done" in of_one) == (True, False)
    await gateway.stop()


async def test_words_and_a_time_range_find_lines_and_the_zone_is_named(running: Running, tmp_path: Path):
    day = datetime.now(UTC).date() - timedelta(days=2)
    write(tmp_path, {"event": "early", "path": "/Offers"}, {"event": "other"}, ago=3)
    write(
        tmp_path, {"event": "noon", "path": "/Offers"}, {"event": "noon", "path": "/x", "key": "hunter2hunter2"}, ago=2
    )
    write(tmp_path, {"event": "today", "path": "/offers"})
    mask = SecretMask()
    mask.add("hunter2hunter2")
    gateway = await started(running, tmp_path, mask=mask)
    (gateway.web.path.workspace / "USER.md").write_text("- Time zone: Asia/Tokyo\n")
    async with gateway.web.sign_in() as browser:
        assert "Times are in Asia/Tokyo" in (await browser.get("/logs")).text
        words = shown(await first(browser, f"q=OFFERS&since={day}T21:00&until={day}T22:00"))
        assert ("noon" in words, "early" in words, "today" in words) == (True, False, False)
        assert f'title="{day} 21:34:56+09:00"' in words, "12:34 UTC"
        assert shown(await first(browser, f"since={day}T22:00&until={day}T23:00")) == ""
        assert shown(await first(browser, f"q=hunter2&since={day}T21:00")) == "", "a secret is no word to search for"
        assert (await browser.get("/logs?since=soon")).status_code == 400
    await gateway.stop()


async def test_new_lines_come_by_themselves_and_old_ones_go(running: Running, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(screen, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(screen, "MAX_LINES", 2)
    write(tmp_path, {"event": "first"}, {"event": "second"}, {"event": "third"})
    gateway = await started(running, tmp_path)
    async with gateway.web.sign_in() as browser, following(browser, "") as frames:
        text = shown(await anext(frames))
        assert ("first" in text, "third" in text) == (False, True)
        write(tmp_path, {"event": "fourth"})
        added, removed = await anext(frames)
        assert (added[0], "fourth" in added[2], removed[:2]) == ("insert", True, ["remove", "line0"])
    await gateway.stop()


async def test_secrets_are_hidden_also_those_learned_later(running: Running, tmp_path: Path):
    mask = SecretMask()
    write(
        tmp_path,
        {"event": "called", "key": "hunter2hunter2", "url": "https://me:geheim@host", "got": "claw_" + "x" * 43},
    )
    gateway = await started(running, tmp_path, mask=mask)
    mask.add("hunter2hunter2")
    async with gateway.web.sign_in() as browser:
        text = shown(await first(browser, ""))
    assert text.count("[hidden]") == 3
    assert not any(secret in text for secret in ("hunter2", "geheim", "xxxx"))
    await gateway.stop()


async def test_only_the_end_of_a_long_log_is_read(running: Running, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(screen, "TAIL_BYTES", 400)
    write(tmp_path, *({"event": f"event{number}"} for number in range(50)))
    gateway = await started(running, tmp_path)
    async with gateway.web.sign_in() as browser:
        text = shown(await first(browser, ""))
    assert ("event49<" in text, "event40<" in text, 'level">critical' in text) == (True, False, False)
    await gateway.stop()


async def test_yesterdays_lines_are_shown_until_there_are_new_ones(running: Running, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(screen, "POLL_SECONDS", 0.05)
    write(tmp_path, {"event": "yesterday"}, ago=1)
    gateway = await started(running, tmp_path)
    async with gateway.web.sign_in() as browser, following(browser, "") as frames:
        assert "yesterday" in shown(await anext(frames))
        write(tmp_path, {"event": "today"})
        assert "today" in shown(await anext(frames))
    await gateway.stop()


async def test_a_session_without_a_log_is_told(running: Running, tmp_path: Path):
    gateway = await started(running, tmp_path)
    async with gateway.web.sign_in() as browser:
        for asked in ("abc", "../../etc", "<b>"):
            page = (await browser.get("/logs", params={"session": asked})).text
            assert "matches no session with a log" in page
            assert "data-stream" not in page
            assert (await browser.get("/logs/events", params={"session": asked})).status_code == 409
        assert "data-stream" in (await browser.get("/logs")).text
        assert (await browser.get("/logs?level=loud")).status_code == 400
    await gateway.stop()


async def test_no_token_reads_the_log(running: Running, tmp_path: Path):
    gateway = await started(running, tmp_path)
    assert (await gateway.web.client.get("/logs/events", headers=BEARER)).status_code == 401
    await gateway.stop()
