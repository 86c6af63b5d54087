"""One test per finding of an attack, a file per theme."""
