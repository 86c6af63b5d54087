"""The memory of an OpenClaw: the files that are copied into one, and the installer that does it."""
