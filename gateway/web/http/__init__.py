"""Requests and answers, before anything of ours is in them."""
