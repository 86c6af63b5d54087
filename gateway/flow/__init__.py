"""The path of a message: inbound, dispatch, turns, sinks, outbound."""
