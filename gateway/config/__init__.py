"""config.json: its model, loading, watching and editing; and the environment variables."""
