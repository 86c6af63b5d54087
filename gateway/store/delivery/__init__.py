"""What came in and what goes out, and where to."""
