"""Reads files of unknown size and origin in bounded memory."""
