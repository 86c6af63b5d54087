"""A shell on files in memory: just-bash, restricted to the commands that behave as the real programs do."""
