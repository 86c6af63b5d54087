"""What is known about files: whose they are, how far they are trusted, which messages and machines share them."""
