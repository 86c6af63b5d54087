"""Tasks, their trees, steps, to-do lists and budgets; schedules, triggers, heartbeats; the machines that run them."""
