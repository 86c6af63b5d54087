"""Terminal subcommands, one file each; `main.py` lists them."""
