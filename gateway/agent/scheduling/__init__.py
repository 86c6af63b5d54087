"""What the agent is asked when nobody wrote, and what people are told of it."""
