"""Contexts and helpers for single checks."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from gateway.app.checks.context import Check, CheckContext, load_context
from gateway.config.environment import Environment
from gateway.domain.health import Finding

Fake = TypeVar("Fake", bound=AbstractAsyncContextManager[object])

Examine = Callable[..., list[Finding]]


def context(folder: Path, text: str | None = None, *, live: bool = False, **environ: str) -> CheckContext:
    """A context with `text` as config.json, and only `environ` as environment."""
    if text is not None:
        (folder / "config.json").write_text(text)
        (folder / "config.json").chmod(0o600)
    around = {
        "SUPACLAW_DATA": str(folder / "data"),
        "SUPACLAW_CONFIG": str(folder / "config.json"),
        "OLLAMA_HOST": "127.0.0.1:1",
        **environ,
    }
    return load_context(Environment.read(around), around, live=live)


def examine_with(folder: Path) -> Examine:
    def examine(check: Check, text: str | None = None, live: bool = False, **environ: str) -> list[Finding]:
        return list(check(context(folder, text, live=live, **environ)))

    return examine


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    """Level and text of each."""
    return [(finding.level.value, finding.text) for finding in findings]


def put(path: Path, text: str = "", mode: int = 0o600) -> Path:
    """A file, its folders made for their owner only."""
    for folder in reversed(path.parents):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@contextmanager
def served(fake: Fake) -> Iterator[Fake]:
    """A fake platform on a loop of its own: the check brings one too."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(fake.__aenter__(), loop).result(10)
        try:
            yield fake
        finally:
            asyncio.run_coroutine_threadsafe(fake.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
