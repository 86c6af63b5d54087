"""The only SQL: one file per noun, statement above the function that runs it; plus the embedded server."""
