"""Tool files: the files in `.agents/tools` that the owner confirmed, as tools of the agent."""
