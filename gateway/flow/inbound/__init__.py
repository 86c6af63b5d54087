"""Arrivals: who it is, what it is, and how it is stored before it is acknowledged."""
