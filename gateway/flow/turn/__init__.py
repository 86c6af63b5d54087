"""One turn of the agent: what it starts from, what it may use, what becomes of each of its steps."""
