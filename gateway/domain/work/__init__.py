"""Work in the background: tasks, trees of them, to-do lists and schedules."""
