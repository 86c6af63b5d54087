"""People, their access and their credentials."""
