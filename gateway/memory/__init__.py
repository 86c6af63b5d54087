"""Rules for memories: which to keep, how to find and word them. Pure; the SQL is in the store, models are in llm."""
