"""What can go wrong on the way to an address."""

from gateway.domain.errors import SupaclawError


class NetError(SupaclawError):
    """A request that was refused or failed. `code` is for programs; the text is one line that says what to do."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
