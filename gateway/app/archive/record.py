"""Which backups were made: an erasure names those that hold it still."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ValidationError

from gateway.config.durable import sync


class Saved(BaseModel, frozen=True):
    """One backup, where it was put."""

    path: Path
    made: AwareDatetime

    def __str__(self) -> str:
        return f"{self.path} ({self.made:%Y-%m-%d %H:%M} UTC{'' if self.path.exists() else ', moved or deleted since'})"


def record(data: Path, path: Path, made: datetime) -> None:
    """Note a backup, on disk when it returns."""
    with (file := data / "backups.jsonl").open("a", encoding="utf-8") as lines:
        file.chmod(0o600)
        lines.write(f"{Saved(path=path, made=made).model_dump_json()}\n")
    sync(file)


def recorded(data: Path) -> list[Saved]:
    """All that were made or restored here, the oldest first; one that was replaced counts once."""
    found = {saved.path: saved for saved in (*_upgrades(data), *_lines(data / "backups.jsonl"))}
    return sorted(found.values(), key=lambda saved: saved.made)


def _lines(file: Path) -> Iterator[Saved]:
    with suppress(FileNotFoundError):
        for line in file.read_text("utf-8", "replace").splitlines():
            with suppress(ValidationError):
                yield Saved.model_validate_json(line)


def _upgrades(data: Path) -> Iterator[Saved]:
    """Those that upgrades made before this was noted."""
    for path in (data / "backups").glob("*.tar.gz"):
        yield Saved(path=path, made=datetime.fromtimestamp(path.stat().st_mtime, UTC))
