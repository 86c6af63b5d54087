"""Failures of requests."""

from http import HTTPStatus

from gateway.domain.errors import SupaclawError


class NetError(SupaclawError):
    """A request that was refused or failed. `code` is for programs; the text is one line that says what to do.

    A `foreign` error is in a server's words, or names a host that somebody else chose, such as a page that redirects.
    """

    def __init__(self, code: str, text: str, *, foreign: bool = False) -> None:
        super().__init__(text)
        self.code: str = code
        self.foreign = foreign


def status_error(host: str, status: int, hint: str = "") -> NetError:
    """The error for a response whose status says that the request failed."""
    words = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown"
    return NetError(f"http_{status}", f"{host} answered {status} ({words}){hint}.")
