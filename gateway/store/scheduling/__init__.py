"""Schedules, their runs, heartbeats and triggers."""
