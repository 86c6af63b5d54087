"""Approvals: a run's question to a person, and what follows from the answer."""
