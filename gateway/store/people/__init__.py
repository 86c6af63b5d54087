"""Principals, their identities, pairings, links and tokens."""
