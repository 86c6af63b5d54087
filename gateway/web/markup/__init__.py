"""Markdown on the page, with code in colours, formulas and lists of tasks."""
