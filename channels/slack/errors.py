"""Slack's refusals, in words that say what to do."""

from gateway.domain import platform

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
