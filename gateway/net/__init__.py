"""The web: one guarded way to every address that comes from a model, a message, a skill, a server or a page."""
