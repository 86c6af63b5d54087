"""Work in separate CPU processes: text extraction, the local embedding model, shells on virtual files."""
