"""Timed work beside the conversations: timers, schedules, the heartbeat, the memory index, health."""
