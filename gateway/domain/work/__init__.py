"""Work in the background: tasks, trees of them, plans and schedules."""
