"""Secret values, without I/O: sealing them, adding them to requests, finding them in texts."""
