"""Work beside the conversations: the worker and its jobs, upkeep, and CPU-heavy work."""
