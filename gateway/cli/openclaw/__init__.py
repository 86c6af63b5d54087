"""`supaclaw openclaw`: the memory of an OpenClaw installation, put in and taken out again."""
