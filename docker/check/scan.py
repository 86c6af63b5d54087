"""Nothing of the machine that built the image is in it, and nothing in it lacks a library."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from docker.check.build import Builder, Settings
from docker.check.shell import check

SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
OURS_ALONE = ("PIP_", "UV_", "NPM_")


def scan(builder: Builder, root: Path, settings: Settings) -> None:
    """Looks through the history, the environment and every file that is not the base's."""
    check(settings.user == "10001:10001", "it runs as uid 10001")
    check(set(settings.volumes) == {"/data"}, "its data is a volume")
    check(settings.stop_signal == "SIGTERM", "it is stopped by SIGTERM")
    words = set(_telling())
    found = [name for name, text in (("history", builder.history()), *_files(root, builder.base)) if _in(text, words)]
    check(not found, f"none of {len(words)} words of this machine is in its history or files {found or ''}")
    loose = [str(path) for path in _walk(root, builder.base) if _loose(path)]
    check(not loose, f"no file in it is writable for all, or changes who runs it {loose or ''}")


def _telling() -> Iterator[str]:
    """What would tell of this machine: its name, its proxies and mirrors, every secret it knows."""
    for name, value in os.environ.items():
        is_proxy = name.lower().endswith("_proxy")
        if len(value) >= 8 and (is_proxy or name.endswith(SECRET) or (name.startswith(OURS_ALONE) and "://" in value)):
            yield value
    if len(socket.gethostname()) >= 8:
        yield socket.gethostname()
    yield from ("http_proxy=", "https_proxy=", "HTTP_PROXY=", "HTTPS_PROXY=")


def _in(text: str, words: set[str]) -> bool:
    return any(word in text for word in words)


def _files(root: Path, base: Path) -> Iterator[tuple[str, str]]:
    """Texts that a build writes: settings, caches, records of packages; not the code of libraries."""
    for path in _walk(root, base):
        if "site-packages" not in path.parts or ".dist-info" in str(path):
            yield str(path), path.read_bytes().decode("latin-1")


def _walk(root: Path, base: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            if path.is_file() and not path.is_symlink() and not (base / path.relative_to(root)).exists():
                yield path


def _loose(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID))
