"""Arrivals, deliveries, and the addresses of both."""
