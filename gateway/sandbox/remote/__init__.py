"""The jail in a container of its own: the gateway asks for a command over a Unix socket, a small service runs it."""
