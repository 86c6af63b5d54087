"""Memories, imports and erasure."""
