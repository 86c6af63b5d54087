"""What its users do with it: talk to it, edit its configuration, restart it, pull its plug."""

import asyncio
import json
import os
import re
import socket
import time
from pathlib import Path

from docker.check.build import Settings
from docker.check.commands import BUILT, commands
from docker.check.container import SECONDS, Container
from docker.check.lint import ROOT
from docker.check.shell import check
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, Json, configured, until

LIBRARIES = "cv2, litellm, lxml.etree, onnxruntime, pypdfium2, rapidocr, uvloop, channels.whatsapp.sdk"


async def journey(root: Path, settings: Settings, folder: Path) -> None:
    """Raises `SystemExit` at the first thing that is not as promised."""
    environ = {"SUPACLAW_PORT": str(_free_port()), "SUPACLAW_PUBLIC_URL": "http://localhost:8080", "NO_COLOR": "1"}
    container, other = (Container(root, settings, folder / name, environ) for name in ("first", "other"))
    folders, workshop, again = (
        Container(root, settings, folder / place, {}, name)
        for place, name in (("first", "folders"), ("first", "workshop"), ("other", "folders"))
    )
    async with FakeTelegram() as telegram, FakeModels() as models:
        try:
            check(await folders.complete() == await again.complete() == 0, "the folders of the service are made")
            await _life(container, other, workshop, telegram, models)
        finally:
            for each in (container, other, workshop):
                await each.close()


async def _life(
    container: Container, other: Container, workshop: Container, telegram: FakeTelegram, models: FakeModels
) -> None:
    _configure(container, configured(telegram, models))
    await _first_start(container)
    await _said(telegram, "hello mk1x", "fin1x")
    check(True, "a message in Telegram is answered there")
    await _locked_in(container)
    await commands(container, workshop, telegram, models)
    await _health(container)
    await _reload(container, telegram, models)
    await _stop(container, telegram, models)
    await _restart(container, telegram, models)
    await _power_cut(container, telegram)
    code, told = await container.run("supaclaw", "backup", "/data/backup.tar.gz")
    check(code == 0, told)
    code, seconds = await container.stop()
    check(code == 0, f"an idle one stops within {seconds:.1f} s")
    await _restore(container, other, telegram, models)


async def _first_start(container: Container) -> None:
    begun = time.monotonic()
    await container.start()
    check(True, f"it is ready after {time.monotonic() - begun:.1f} s, its Postgres made and started")
    code, told = await container.run("supaclaw", "web")
    linked = re.match(r"http://claw-[0-9a-f]{20}\.localhost:8080/login#t=", told)
    check(code == 0 and linked is not None, "`supaclaw web` links to the public port, at the page's own name")
    check(not any("#t=" in line for line in container.told), "and its log has no link")
    code, told = await container.run(
        "python3",
        "-c",
        f"import os; os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'; import {LIBRARIES}; "
        "channels.whatsapp.sdk.preload()",
    )
    check(code == 0, "its libraries load" if code == 0 else told)


async def _locked_in(container: Container) -> None:
    _, told = await container.run("sh", "-c", "touch /app/x /config/x /usr/x 2>&1 | grep -c 'Read-only file system'")
    check(told == "3", "nothing but its data can be written")
    _, told = await container.run("sh", "-c", "cat /proc/[0-9]*/status | grep -E '^(Uid|CapBnd|NoNewPrivs):' | sort -u")
    facts = [line.split() for line in told.splitlines()]
    right = [["CapBnd:", "0" * 16], ["NoNewPrivs:", "1"], ["Uid:", *["10001"] * 4]]
    check(facts == right, "every process in it is uid 10001 without any privilege")


async def _health(container: Container) -> None:
    await until(container.well, SECONDS)
    begun = time.monotonic()
    await container.well()
    check(True, f"its health check takes {(time.monotonic() - begun) * 1000:.0f} ms, entering included")
    old = time.time() - 46
    os.utime(container.data / "health", (old, old))
    check(not await container.well(), "a health file of 46 seconds ago is unwell")
    await until(container.well, SECONDS)
    check(True, "and it gets well by itself")


async def _reload(container: Container, telegram: FakeTelegram, models: FakeModels) -> None:
    changed = configured(telegram, models)
    changed["models"]["primary"] = "openai/another-model"
    begun = time.monotonic()
    _configure(container, changed)
    await container.hears("config.changed")
    took = time.monotonic() - begun
    await _said(telegram, "hello mk2x", "fin2x")
    check(
        models.bodies[-1]["model"] == "another-model",
        f"config.json, replaced as editors do, is taken over in {took:.1f} s",
    )
    (container.config / "config.json").write_text("{")
    await container.hears("config.rejected")
    await _said(telegram, "hello mk3x", "fin3x")
    check(True, "a bad edit is refused and nothing stops")
    _configure(container, changed)


async def _stop(container: Container, telegram: FakeTelegram, models: FakeModels) -> None:
    models.latency_ms = 3000
    models.started.clear()
    telegram.say("hello mk4x", OWNER)
    await asyncio.wait_for(models.started.wait(), SECONDS)
    code, seconds = await container.stop()
    models.latency_ms = 0
    answered = "fin4x" in telegram.sent[-1].text
    check(code == 0 and answered, f"SIGTERM: the turn under way is finished, and it ends after {seconds:.1f} s")
    check(seconds < _grace(), f"that is within the grace period of {_grace()} s in docker-compose.yml")
    check(not (container.data / "postgres" / "postmaster.pid").exists(), "Postgres was stopped in good order")


async def _restart(container: Container, telegram: FakeTelegram, models: FakeModels) -> None:
    begun = time.monotonic()
    await container.start()
    took = time.monotonic() - begun
    await _said(telegram, "hello mk5x", "fin5x")
    seen = json.dumps(models.bodies[-1]["messages"])
    check(
        all(f"mk{n}x" in seen for n in range(1, 6)), f"restarted in {took:.1f} s, it goes on with the same conversation"
    )
    _, told = await container.run("supaclaw", "owner", "show", "--json")
    check(str(OWNER) in told, "and belongs to the same owner")


async def _power_cut(container: Container, telegram: FakeTelegram) -> None:
    await container.kill()
    await container.start()
    await _said(telegram, "hello mk6x", "fin6x")
    answers = [word for sent in telegram.sent for word in re.findall(r"fin\d+x", sent.text) if word != BUILT]
    check(answers == [f"fin{n}x" for n in range(1, 7)], f"so it does after its plug was pulled: {answers}")


async def _restore(container: Container, other: Container, telegram: FakeTelegram, models: FakeModels) -> None:
    (container.data / "backup.tar.gz").rename(other.config / "backup.tar.gz")
    code, told = await other.once("restore", "/config/backup.tar.gz", SUPACLAW_CONFIG="/data/restored.json")
    check(code == 0, told)
    (container.config / "config.json").rename(other.config / "config.json")
    await other.start()
    await _said(telegram, "hello mk7x", "fin7x")
    seen = json.dumps(models.bodies[-1]["messages"])
    check("mk1x" in seen, "restored into an empty volume, it goes on with the same conversation")


async def _said(telegram: FakeTelegram, text: str, answer: str) -> None:
    telegram.say(text, OWNER)
    await telegram.wait_for(lambda tg: any(answer in sent.text for sent in tg.sent), SECONDS)


def _configure(container: Container, config: Json) -> None:
    beside = container.config / "config.json.new"
    beside.write_text(json.dumps(config))
    beside.replace(container.config / "config.json")


def _grace() -> int:
    found = re.search(r"stop_grace_period: (\d+)s", (ROOT / "docker-compose.yml").read_text("utf-8"))
    assert found is not None
    return int(found[1])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
