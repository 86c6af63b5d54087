"""A week of 60 ordinary requests of one person, with and without plans: how many questions they get."""
