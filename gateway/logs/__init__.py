"""Logs: JSON lines in daily files and in files per session, readable lines on the terminal, and no secret in any."""

from gateway.logs.files import prune
from gateway.logs.setup import SecretMask, logging_to

__all__ = ["SecretMask", "logging_to", "prune"]
