"""Tasks and their trees, steps, plans and budgets; schedules, triggers and heartbeats; the machines that run them."""
