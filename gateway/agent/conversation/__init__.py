"""A conversation as a prompt: its context, how it fits, its summary, its branches."""
