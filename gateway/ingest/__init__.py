"""Bytes into pages and text. Every file is hostile: reading is bounded, and a bad file is a problem told, no error."""
