"""Connections of commands to the database and to the running gateway."""
