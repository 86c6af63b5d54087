"""Secrets at run time: stored encrypted, opened in memory, kept out of texts."""
