"""Files: their owners, their labels, and the messages and machines that share them."""
