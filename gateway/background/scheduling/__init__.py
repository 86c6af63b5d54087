"""What is done when: the table of named jobs, the slots of schedules, the heartbeat."""
