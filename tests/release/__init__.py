"""Of a release: what people install, and how it is built."""
