"""The jail in a container of its own: a small service runs the commands that it gets over a Unix socket."""
