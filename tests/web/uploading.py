"""Files to upload, and the uploading of them."""

import struct
import zlib

from tests.web.conftest import BEARER, Web


def png(width: int = 240, height: int = 160) -> bytes:
    """A picture: red to the right, green downwards."""
    rows = (
        bytes([0]) + b"".join(bytes([255 * x // width, 255 * y // height, 90]) for x in range(width))
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


async def upload(web: Web, name: str, content: bytes, mime: str = "") -> dict[str, object]:
    """One file, by the API."""
    answer = await web.client.post("/api/files", files={"file": (name, content, mime)}, headers=BEARER)
    assert answer.status_code == 201, answer.text
    return answer.json()
