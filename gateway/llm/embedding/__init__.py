"""Embedding models: the one that is shipped, and those of providers."""
