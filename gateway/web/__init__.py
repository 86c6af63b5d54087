"""The web page, the JSON API, the OpenAI-compatible API and webhooks: one FastAPI app, loaded after the first poll."""
