"""Which backups were made: an erasure names those that hold it still."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gateway.config.data.files import sync_to_disk

_LINE = "{:%Y-%m-%d %H:%M} UTC {}"


def record(data: Path, path: Path, made: datetime) -> None:
    """Note a backup, on disk when it returns."""
    with (file := data / "backups.list").open("a", encoding="utf-8", errors="surrogateescape") as lines:
        file.chmod(0o600)
        lines.write(f"{_LINE.format(made, path)}\n")
    sync_to_disk(file)


def recorded(data: Path) -> list[str]:
    """Those that were made or restored here, and those of upgrades; the oldest first."""
    lines = list[str]()
    with suppress(FileNotFoundError):
        lines = (data / "backups.list").read_text("utf-8", "surrogateescape").splitlines()
    for path in (data / "backups").glob("*.tar.gz"):
        if not any(line.endswith(f" {path}") for line in lines):
            lines.append(_LINE.format(datetime.fromtimestamp(path.stat().st_mtime, UTC), path))
    return sorted(lines)
