"""What is said to people: split, queued with the answer, sent in order, receipted."""
