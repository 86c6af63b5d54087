"""The owner's skills: where they come from, and which of them are on."""
