"""Servers of the Model Context Protocol."""
