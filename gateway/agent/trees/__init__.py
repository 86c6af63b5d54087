"""Trees of tasks: their agents, and how people and the chat's agent start and follow them."""
