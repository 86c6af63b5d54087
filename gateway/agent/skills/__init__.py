"""The owner's skills: their sources, and which of them are on."""
