"""What goes over the wire to providers and comes back, and how much of it is taken."""
