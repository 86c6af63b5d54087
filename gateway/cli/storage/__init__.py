"""What it keeps: memories, files, versions, backups."""
