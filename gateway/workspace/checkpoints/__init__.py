"""Checkpoints: the workspace as it was, in a Git store outside the agent's reach."""
