"""Requests to providers and their answers on the wire, and the limits of an answer."""
