"""Nodes of task trees: their turns, what they ask of the engine, and how they end."""
