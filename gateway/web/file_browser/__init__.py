"""The owner's files on the page: the tree of folders, and one file as it is shown."""
