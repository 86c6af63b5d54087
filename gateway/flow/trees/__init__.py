"""Nodes of task trees: their turns, their system calls, and how they end."""
