"""Checkpoints: versions of the workspace, in a Git store that the agent cannot access."""
