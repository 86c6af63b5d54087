"""Who may talk to it: the owner, guests, programs, linked accounts."""
