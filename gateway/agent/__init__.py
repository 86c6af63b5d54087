"""The agent: a loop of model calls and tools over a transcript."""
