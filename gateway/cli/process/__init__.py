"""The gateway's process: start it, stop it, check it, configure it."""
