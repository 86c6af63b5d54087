"""Files of people: uploads, checkpoints, and the same workspace on several machines."""
