"""Texts: how they are cut, marked, shown and counted."""
