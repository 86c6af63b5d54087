"""Messages, the files that came with them, the journals that show them, what is remembered of them."""
