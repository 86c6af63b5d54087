"""Conversations: messages, models and tools as a transcript has them."""
