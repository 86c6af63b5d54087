"""The journal: files with the messages that arrive and the answers, next to the database."""
