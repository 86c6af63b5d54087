"""One file per kind of provider; a prefix with a file of its own is served by that file."""
