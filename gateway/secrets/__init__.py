"""What is done with secret values, without I/O: sealing, putting them into requests, finding them in texts."""
