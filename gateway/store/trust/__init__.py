"""Whose words something is, what was allowed, and the record of it."""
