"""A shell on files that exist in memory only: just-bash, of which only what answers as the real programs do is offered."""
