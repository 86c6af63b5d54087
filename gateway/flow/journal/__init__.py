"""The journal at work: what arrives is in a file before the database has it, what is said is copied there after."""
