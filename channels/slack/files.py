"""Files in, and files out: the bytes first, unseen, and then one request that shows them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from channels.slack.client import CONNECT_SECONDS, Client, translated
from channels.slack.errors import Refused, refusal
from channels.slack.kept import Kept
from channels.slack.payloads import File, FileAnswer, Payload, Upload
from gateway.domain.channels.channel import FetchDelayed, FetchFailed, Outgoing, OutgoingFile, SendFailed
from gateway.domain.channels.platform import PlatformError, Unanswered, Undecidable, Unreachable, seconds_to_wait
from gateway.domain.conversation.inbound import Attachment

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_LATER = {401, 407, 408, 409, 420, 425}
_LOGIN_PAGE = "text/html"


class Files:
    """`kept` knows under which key a file of Slack's is, or was about to be, shown: it outlives a crash.

    Bytes and token go to Slack's own hosts, or the configured one, and to nobody else.
    """

    def __init__(self, client: Client, kept: Kept) -> None:
        self._client = client
        self._kept = kept

    async def send(self, message: Outgoing, file: OutgoingFile, caption: str) -> str:
        """Slack's id of the file; raises `PlatformError`, `SendFailed` and `TryAgainLater`."""
        begun = f"file {message.key}"
        id = self._kept.get(begun)
        if id is None:
            id = await self._upload(file)
            await self._kept.put(begun, id)
        if not (message.again and await self._is_shown(id)):
            request = self._client.web.files_completeUploadExternal(
                files=[{"id": id, "title": file.name}],
                channel_id=message.address.chat,
                thread_ts=message.address.thread or None,
                initial_comment=caption or None,
            )
            await self._client.call(request, Payload)
        await self._kept.drop(begun)
        return id

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes, from wherever Slack now says they are; raises `FetchFailed` or `FetchDelayed`."""
        name = attachment.name or "the file"
        try:
            file = await self._known(attachment.ref)
            if file.url_private_download is None or file.is_external:
                raise FetchFailed(f"{name} is not stored at Slack")
            token = {"Authorization": f"Bearer {self._client.bot_token}"}
            async with self.transfer("GET", file.url_private_download, headers=token) as response:
                if response.content_type == _LOGIN_PAGE and file.mimetype != _LOGIN_PAGE:
                    raise FetchFailed(f"Slack does not hand {name} to the app: does it have the scope files:read?")
                async for piece in response.content.iter_chunked(64 * 1024):
                    yield piece
        except Refused as error:
            raise FetchFailed(f"Slack does not hand {name} out: {error}") from error
        except PlatformError as error:
            raise FetchDelayed(str(error)) from error

    async def _known(self, id: str) -> File:
        return (await self._client.call(self._client.web.files_info(file=id), FileAnswer)).file

    async def _is_shown(self, id: str) -> bool:
        try:
            return any((await self._known(id)).shares.values())
        except Refused as error:
            raise Undecidable(f"cannot look whether it was shown: {error}") from error

    async def _upload(self, file: OutgoingFile) -> str:
        """Nobody has seen it yet, so whatever goes wrong, nothing was shown. The address is a secret of its own."""
        request = self._client.web.files_getUploadURLExternal(filename=file.name, length=file.size)
        try:
            place = await self._client.call(request, Upload)
            with await asyncio.to_thread(Path(file.path).open, "rb") as data:
                async with self.transfer("POST", place.upload_url, data=data):
                    return place.file_id
        except Unanswered as error:
            raise Unreachable(str(error)) from error
        except OSError as error:
            raise SendFailed(f"{file.name} cannot be read: {error.strerror}") from error

    @asynccontextmanager
    async def transfer(self, method: str, url: str, **about: Any) -> AsyncIterator["ClientResponse"]:
        """One request beside the Web API. A redirect is a refusal, for the token would go along."""
        from aiohttp import ClientTimeout

        if not self._is_slack(url):
            raise Refused("foreign_host", urlsplit(url).hostname or "")
        patience = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=60)
        about |= {"allow_redirects": False, "timeout": patience, "proxy": self._client.web.proxy}
        with translated():
            async with self._client.http.request(method, url, **about) as response:
                if response.status != 200:
                    code = "" if response.status in _LATER else f"http_{response.status}"
                    raise refusal(response.status, code, "", seconds_to_wait(response.headers.get("Retry-After")))
                yield response

    def _is_slack(self, url: str) -> bool:
        parts = urlsplit(url)
        if self._client.base_url:
            own = urlsplit(self._client.base_url)
            return (parts.scheme, parts.netloc) == (own.scheme, own.netloc)
        host = parts.hostname or ""
        return parts.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))
