"""Memories and their indexes."""
