"""Keeps workspaces the same on several machines, by way of an object store."""
