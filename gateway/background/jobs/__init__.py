"""Runners of background work, one kind of task per file."""
