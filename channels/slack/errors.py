"""What an answer of Slack's that is not "ok" means for what was asked.

| answer | it was | error |
| --- | --- | --- |
| 429, a code of `_TOO_FAST` | not carried out | `TooFast` |
| 5xx, a code of `_TROUBLE`, no code at all | perhaps carried out, which is looked up | `Unanswered` |
| a code of `_TOKEN` | not carried out; the app is not known or not let in | `TokenRefused` |
| a code of `_CLOSED`, 4xx without a code | not carried out; the workspace or a proxy is shut | `TurnedAway` |
| any other code | refused | `Refused`, final for a text if in `_FINAL` |
"""

import re

from gateway.domain.channels import platform
from gateway.domain.channels.platform import PlatformError, TokenRefused, TooFast, TurnedAway, Unanswered

_TOO_FAST = re.compile(r"rate_?limited|message_limit_exceeded")
_TROUBLE = re.compile(r"fatal_error|internal_error|request_timeout|service_unavailable")
_TOKEN = re.compile(r"account_inactive|invalid_auth|no_permission|not_allowed_token_type|not_authed|token_")
_CLOSED = re.compile(
    r"access_denied|accesslimited|ekm_access|enterprise_is|org_login|team_access|team_added|two_factor"
)
_FINAL = re.compile(
    r"channel_|.*_not_found|is_|not_in_channel|restricted_action|msg_|no_text|invalid_|metadata_|markdown_|too_many_|as_user_"
    r"|cannot_|cant_|messages_tab_disabled|user_|slack_connect_|attachment_|http_[34]|foreign_host|method_|unknown_method"
)
"""What can never work for a text, whoever mends what; a file may be refused for any reason, for then words go."""

_MEANINGS = {
    "account_inactive": "the app was removed from the workspace; install it again at api.slack.com/apps",
    "channel_not_found": "Slack does not know the chat, or the app is not in it; invite it there",
    "is_archived": "the channel is archived",
    "missing_scope": "the app lacks a permission; add it at api.slack.com/apps and install the app again",
    "not_in_channel": "the app is not in the channel; invite it there",
    "restricted_action": "the workspace does not let the app write there",
}


class Refused(platform.Refused):
    """Slack refused the request for the reason `code`, such as "channel_not_found"."""

    retry_after = 30.0

    def __init__(self, code: str, needed: str = "") -> None:
        super().__init__(f"{_MEANINGS.get(code, 'Slack refuses it')} ({code})" + (f": {needed}" if needed else ""))
        self.code = code

    @property
    def final(self) -> bool:
        """Whether the same text can never be shown there."""
        return _FINAL.match(self.code) is not None


def refusal(status: int, code: str, needed: str, wait: float | None) -> PlatformError:
    """The error for an answer with this status, error code and `Retry-After` header."""
    if status == 429 or _TOO_FAST.match(code):
        return TooFast("Slack", wait)
    if not code and 400 <= status < 500:
        return TurnedAway(f"Slack answered {status}")
    if not code or status >= 500 or _TROUBLE.match(code):
        return Unanswered(f"Slack answered {code or status or 'something unreadable'}")
    if _TOKEN.match(code):
        why = _MEANINGS.get(code, "a token is wrong or was revoked; api.slack.com/apps shows both")
        return TokenRefused(f"{why} ({code})")
    if _CLOSED.match(code):
        return TurnedAway(f"Slack accepts no logins at the moment ({code})")
    return Refused(code, needed)
