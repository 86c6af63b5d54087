"""Who is at the page, and what they may."""
