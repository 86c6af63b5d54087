"""What goes on by the clock, beside the work: timers, schedules, the heartbeat, the memory index, health."""
