"""The agent's work: what it may do, its tools and skills, its tasks and schedules."""
