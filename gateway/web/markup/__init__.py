"""What goes beyond plain Markdown in an answer: code in colours, formulas, lists of tasks."""
