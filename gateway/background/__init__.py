"""What runs beside the conversations: the worker, and the gateway's own signs of life."""
