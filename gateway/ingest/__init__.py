"""Turns files into pages and text. Files may be hostile: reading is bounded, and a bad one gives a problem text."""
