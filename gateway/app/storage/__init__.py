"""What is kept, as a whole: the database and its upgrades, backups and restores, the erasing of a memory."""
