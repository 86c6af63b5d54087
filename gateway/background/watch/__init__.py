"""Whether the gateway is well: liveness, the event loop, memory, the channels, by the monotonic clock."""
