"""People's files: uploads, checkpoints, and one workspace on several machines."""
