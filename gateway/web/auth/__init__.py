"""Access: the requirements of routes, the guard that checks them, and signing in."""
