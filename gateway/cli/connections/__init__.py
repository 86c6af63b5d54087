"""How a command reaches the database and the running gateway."""
