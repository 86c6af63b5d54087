"""config.json: its model, how it is read, watched and edited, and the environment around it."""
