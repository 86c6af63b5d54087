"""What it does by itself or for other programs."""
