"""Conversations with the agent: chat in the terminal, list and export earlier ones."""
