"""The logins of channels: what a channel has to remember by itself and keeps in files, such as the keys of a device."""

import io
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from gateway.app.archive.manifest import CHANNELS
from gateway.app.archive.writing import ArchiveWriter
from gateway.config.channels import channel_names


def add_logins(writer: ArchiveWriter, data: Path) -> None:
    """Add what the modules of channels offer as `backup_files`. Not for the process that runs the channels.

    These are names and how to read each as a whole, in the order in which they are to be read; a file that is gone
    when its turn comes is gone.
    """
    for name in channel_names():
        folder = data / CHANNELS / name
        if not folder.is_dir():
            continue
        for file, read in getattr(import_module(f"channels.{name}"), "backup_files", lambda _: ())(folder):
            with suppress(FileNotFoundError):
                writer.add(f"{CHANNELS}/{name}/{file}", io.BytesIO(read()))
