"""A workspace that several machines share: what differs between a folder and the map, and how files come and go."""
