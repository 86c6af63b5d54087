"""Calls of a command that are answered from outside, where a filter alone cannot tell."""
