"""Stand-ins for what the gateway talks to."""
