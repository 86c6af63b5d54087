"""When schedules are due: cron expressions, validation, which slots to run, and times in words."""
