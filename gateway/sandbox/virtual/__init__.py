"""A shell on files in memory: just-bash, of which only what answers as the real programs do is offered."""
