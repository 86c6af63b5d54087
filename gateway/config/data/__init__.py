"""The data folder: files that survive a crash, and who holds it."""
