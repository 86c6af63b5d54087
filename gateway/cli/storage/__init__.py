"""Stored things: memories, files, checkpoints, secrets, backups."""
