"""What runs in a CPU process of its own: text extraction, the local embedding model, shells on virtual files."""
