"""What to remember, how to find it again and how to word it: pure rules; the SQL is in the store, models are in llm."""
