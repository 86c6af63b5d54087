"""Unattended runs, of schedules, triggers and heartbeats: how they start and end, and how results are delivered."""
