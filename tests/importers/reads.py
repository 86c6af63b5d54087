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
from gateway.importers import discover, read_parts
from gateway.importers.records.files import Reader

BERLIN = ZoneInfo("Europe/Berlin")


def read(source: str, path: Path) -> list[Record]:
    parts = read_parts(source, path, discover(), Reader(BERLIN))
    return [record for _, records in parts for record in records]


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
