"""The files of a workspace: paths, access, reading, writing, uploads, search."""
