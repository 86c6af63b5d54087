"""The composition root: builds everything, starts it in one order and stops it in another."""

from gateway.app.start import open_database, run

__all__ = ["open_database", "run"]
