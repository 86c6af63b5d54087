"""The public URL of the web page: "https://claw.example.org"."""

from typing import Annotated

from pydantic import AfterValidator, ValidationError
from pydantic_core import Url

_OWN = frozenset({"localhost", "127.0.0.1", "[::1]"})


def origin_of(text: str) -> str:
    """Normalise a URL to an origin as browsers send it; raises `ValueError` with a message for people."""
    try:
        url = Url(text.strip())
    except ValidationError:
        raise ValueError('must be an address such as "https://claw.example.org"') from None
    if url.scheme != "https" and not (url.scheme == "http" and url.host in _OWN):
        raise ValueError("must begin with https:// (http:// only for localhost)")
    origin = str(Url.build(scheme=url.scheme, host=url.host or "", port=url.port))
    if str(url) != origin:
        raise ValueError(f"must be a host and perhaps a port, nothing before or after: {origin.rstrip('/')}")
    return origin.rstrip("/")


PublicUrl = Annotated[str, AfterValidator(origin_of)]
