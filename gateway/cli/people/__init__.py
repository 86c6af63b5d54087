"""People and programs with access: the owner, members, tokens, linked accounts."""
