"""Secrets while the program runs: stored sealed, opened in memory, found by whoever may use them."""
