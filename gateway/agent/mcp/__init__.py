"""Tools of MCP servers: what the owner confirmed of them, and how a turn calls them."""
