"""Messengers, one per file; each knows `gateway.domain` and its own SDK, and is loaded by its config key."""
