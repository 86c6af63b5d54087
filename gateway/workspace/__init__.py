"""The workspace: the folder of files the agent and its owner share."""
