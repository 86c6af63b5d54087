"""URLs of services in the configuration."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator


def _reachable(text: str) -> str:
    try:
        address = urlsplit(text)
        known = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        known = False
    if not known or text != "".join(text.split()):
        raise ValueError('must be an address such as "https://api.example.com/v1" or "http://127.0.0.1:8080"')
    return text


HttpUrl = Annotated[str, AfterValidator(_reachable)]
"""An http or https URL with a host, kept as written."""
