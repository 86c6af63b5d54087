"""The gateway's process: start, stop, look, configure."""
