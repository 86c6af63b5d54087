"""The path of a message: inbound, turns, approvals, outbound; the journal and the live events."""
