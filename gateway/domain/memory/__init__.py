"""What is remembered, what is imported, and what is erased."""
