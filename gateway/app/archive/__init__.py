"""Backups: one file that holds everything the gateway knows, written while it works and read back elsewhere."""

from gateway.app.archive.backup import Backup, back_up
from gateway.app.archive.restore import Restored, examine, restore

__all__ = ["Backup", "Restored", "back_up", "examine", "restore"]
