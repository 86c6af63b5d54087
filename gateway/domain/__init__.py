"""Nouns and pure rules: standard library and pydantic only, no I/O."""
