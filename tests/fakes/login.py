"""The login of a messenger that somebody connects by a QR code or by a code typed on the phone."""

from dataclasses import dataclass, field

from gateway.domain.channels.channel import Login
from gateway.domain.errors import OwnerMustAct


@dataclass
class FakeLogin:
    """A messenger that somebody connects by a QR code."""

    state: Login = field(default_factory=lambda: Login("waiting", qr="2@first,code"))
    asked: list[str] = field(default_factory=list)

    def login(self) -> Login:
        return self.state

    async def request_code(self, phone: str) -> str:
        self.asked.append(phone)
        if phone.endswith("0000"):
            raise OwnerMustAct("too many codes were asked for; wait an hour")
        self.state = Login("waiting", qr=self.state.qr, code="ABCD-EFGH")
        return "ABCD-EFGH"

    async def logout(self) -> None:
        self.state = Login("logged out")
