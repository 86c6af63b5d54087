"""Memory as the agent, commands and programs use it: searching, remembering, and what a prompt is given unasked."""
