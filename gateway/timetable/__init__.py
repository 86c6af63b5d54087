"""When what is due: cron expressions, what a schedule may say, which of its slots to run, in words."""
