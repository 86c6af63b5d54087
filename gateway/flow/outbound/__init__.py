"""Messages to people: split, queued with the answer, sent in order, recorded."""
