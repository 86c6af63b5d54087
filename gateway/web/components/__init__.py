"""Parts that several routes are made of: boards that follow changes, files, rows of memory."""
