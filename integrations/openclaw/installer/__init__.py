"""`supaclaw openclaw`: make SupaClaw the memory of an OpenClaw installation, and undo that."""
