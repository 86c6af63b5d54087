"""Conversations and events while they happen."""
