"""Builds the image without a container engine and uses it as its users do; `make check-image`."""
