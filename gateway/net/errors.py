"""What can go wrong on the way to an address."""

from gateway.domain.errors import SupaclawError


class NetError(SupaclawError):
    """A request that was refused or failed. `code` is for programs; the text is one line that says what to do.

    A `foreign` one names a host that somebody else chose, such as a page that redirects.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.foreign = False
