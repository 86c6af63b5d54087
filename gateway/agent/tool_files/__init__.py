"""Tools as files: what the owner confirmed in `.agents/tools`, as tools of the agent."""
