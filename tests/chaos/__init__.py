"""Every fault that can be made, and what must hold under it. `make chaos` runs all of it."""
