"""Conversations on the page: listing, searching and reading them."""
