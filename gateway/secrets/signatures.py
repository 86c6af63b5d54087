"""Signatures of webhooks: Standard Webhooks in both directions, GitHub's and other HMACs of incoming ones."""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

MAX_AGE_SECONDS = 300
"""How far the time of a Standard Webhook may be from now, in either direction."""


def signature(secret: SecretStr, id: str, seconds: int, body: bytes) -> str:
    """The signature of a Standard Webhook; raises `ValueError` if the secret is not "whsec_" and base64."""
    key = b64decode(secret.get_secret_value().removeprefix("whsec_"), validate=True)
    return "v1," + b64encode(hmac.digest(key, f"{id}.{seconds}.".encode() + body, "sha256")).decode()


class SignedSource(BaseModel):
    """A program that triggers the agent by signed requests to `/webhook/NAME`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["github", "standard", "hmac"] = Field(description='How it signs; "standard" is Standard Webhooks.')
    secret: SecretStr = Field(min_length=8, description="The key of its signatures.")
    header: str = Field("x-signature-256", description='Where "hmac" has the hexadecimal SHA-256.')

    def verifies(self, headers: Mapping[str, str], body: bytes, now: float) -> bool:
        """Whether the body was signed with the secret, in constant time, and recently if the signature has a time."""
        if self.kind == "standard":
            id, time = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
            if not (id and time.isdecimal() and len(time) < 16) or abs(int(time) - now) > MAX_AGE_SECONDS:
                return False
            try:
                wanted = signature(self.secret, id, int(time), body)
            except ValueError:  # of a secret that isn't base64
                return False
            return any(_same(given, wanted) for given in headers.get("webhook-signature", "").split(" "))
        wanted = hmac.digest(self.secret.get_secret_value().encode(), body, "sha256").hex()
        return _same(self._hexadecimal(headers), wanted)

    def delivery(self, headers: Mapping[str, str]) -> str | None:
        """The signed id of the event, which a copy has, too: GitHub's id isn't signed, but its bodies differ."""
        return {"standard": headers.get("webhook-id"), "github": self._hexadecimal(headers)}.get(self.kind)

    def _hexadecimal(self, headers: Mapping[str, str]) -> str:
        """The signature in the one form of those in which it counts."""
        header = "x-hub-signature-256" if self.kind == "github" else self.header
        return headers.get(header, "").lower().removeprefix("sha256=")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
