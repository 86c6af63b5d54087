"""Messengers: what one can do, where its messages come from and go."""
