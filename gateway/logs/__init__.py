"""Logs: JSON lines in a file a day and a file a session, readable lines on the terminal, and no secret in any."""

from gateway.logs.files import DailyFile, SessionFiles
from gateway.logs.mask import SecretMask
from gateway.logs.prune import prune
from gateway.logs.setup import logging_to

__all__ = ["DailyFile", "SecretMask", "SessionFiles", "logging_to", "prune"]
