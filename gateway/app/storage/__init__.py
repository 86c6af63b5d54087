"""The stored data as a whole: the database and its upgrades, backups and restores, the erasure of a memory."""
