"""Connecting a model and messengers: what was pasted is recognised, tested live and saved."""
