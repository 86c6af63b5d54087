"""One call of a model: which provider, how often, and what is left out."""
