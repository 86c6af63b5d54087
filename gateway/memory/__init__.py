"""Memory without its rows: what counts as a word, where a text is cut, how what is found is put in words."""
