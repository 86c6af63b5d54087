"""Locked text: what in the files of a workspace only their owner may change."""
