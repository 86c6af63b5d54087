"""The terminal: output, questions and errors."""
