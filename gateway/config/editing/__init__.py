"""Changing config.json from the page: its form, a change and its review, the write and the way back."""
