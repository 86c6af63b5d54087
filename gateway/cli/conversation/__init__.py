"""Talk with the agent, and what was said."""
