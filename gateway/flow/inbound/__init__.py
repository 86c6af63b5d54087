"""Arrivals: access, routing, and storage before a message is acknowledged."""
