"""Stores what the sources read."""
