"""The composition root: builds everything, starts it in one order and stops it in another."""

from gateway.app.start import run
from gateway.app.storage.database import open_database
from gateway.app.worker import work

__all__ = ["open_database", "run", "work"]
