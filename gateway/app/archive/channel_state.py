"""What channels have to remember by themselves, such as the keys of a device: secrets that no other place has."""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from gateway.app.archive.manifest import CHANNELS
from gateway.app.archive.writing import ArchiveWriter
from gateway.config.channels import channel_names

Files = Iterator[tuple[str, Callable[[], bytes]]]
"""Names, and how to read each one as a whole; reading raises `FileNotFoundError` for one that is gone meanwhile."""


def stateful_channels(data: Path) -> tuple[str, ...]:
    """The channels with something to save."""
    return tuple(name for name in channel_names() if next(_files(data, name), None) is not None)


def copy_state(writer: ArchiveWriter, data: Path) -> None:
    """Add it all, in the order in which each channel wants it read. Not for the process that runs the channels."""
    for name in channel_names():
        for file, read in _files(data, name):
            with suppress(FileNotFoundError):
                writer.add(f"{CHANNELS}/{name}/{file}", io.BytesIO(read()))


def _files(data: Path, name: str) -> Files:
    """What the channel's module offers as `backup_files`; a channel without a folder is not imported."""
    folder = data / CHANNELS / name
    if folder.is_dir() and (offered := getattr(import_module(f"channels.{name}"), "backup_files", None)) is not None:
        yield from offered(folder)
