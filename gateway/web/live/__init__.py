"""What the page shows while it happens."""
