"""Commands of `exec`: one command at a time, and processes that outlive a turn."""
