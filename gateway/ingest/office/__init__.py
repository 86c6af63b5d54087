"""Word, Excel and PowerPoint: their main text, and what stands in the other parts of such a file."""
