"""Backups: one file that holds everything the gateway knows, written while it works and read back elsewhere."""
