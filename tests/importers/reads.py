"""Reads a path as one source, or as what `all` finds, without storing anything."""

from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.domain.memory.imports import (
    Damaged,
    ImportedMemory,
    ImportedMessage,
    ImportedSession,
    ImportedTask,
    Record,
)
from gateway.importers import discover, parts_of
from gateway.importers.records.files import Reader

BERLIN = ZoneInfo("Europe/Berlin")


def read(source: str, path: Path) -> list[Record]:
    sources = discover()
    return [
        record
        for part in parts_of(source, path, sources)
        for record in sources[part.source].read(part.path, Reader(BERLIN))
    ]


def memories(records: Sequence[Record]) -> list[ImportedMemory]:
    return [record for record in records if isinstance(record, ImportedMemory)]


def messages(records: Sequence[Record]) -> list[ImportedMessage]:
    return [record for record in records if isinstance(record, ImportedMessage)]


def sessions(records: Sequence[Record]) -> list[ImportedSession]:
    return [record for record in records if isinstance(record, ImportedSession)]


def tasks(records: Sequence[Record]) -> list[ImportedTask]:
    return [record for record in records if isinstance(record, ImportedTask)]


def damage(records: Sequence[Record]) -> list[Damaged]:
    return [record for record in records if isinstance(record, Damaged)]
