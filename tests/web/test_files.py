import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import pytest

from gateway.domain.conversation.model import ToolCall
from gateway.domain.principals import Label
from gateway.store.files import files
from gateway.store.people import principals, tokens
from gateway.web import files as web_files
from gateway.web.auth import request_guard
from gateway.workspace.files.paths import WorkspacePath
from tests.web.conftest import BEARER, MOST, Web
from tests.web.test_api import answer_to, events, send, until
from tests.web.uploading import png, upload


async def test_a_file_is_stored_and_comes_back_byte_for_byte(web: Web):
    content = os.urandom(300_000)
    kept = await upload(web, "Übersicht Q3.bin", content, "application/x-thing")
    assert (kept["name"], kept["mime"], kept["size"]) == ("Übersicht Q3.bin", "application/x-thing", 300_000)
    assert (web.path.workspace / str(kept["path"])).read_bytes() == content
    back = await web.client.get(f"/api/files/{kept['id']}", headers=BEARER)
    assert back.content == content


async def test_a_page_sent_as_a_file_is_never_shown_as_one(web: Web):
    kept = await upload(web, 'a";x.html', b"<script>alert(1)</script>", "text/html")
    back = await web.client.get(f"/api/files/{kept['id']}", headers=BEARER)
    assert back.headers["content-type"] == "application/octet-stream"
    assert back.headers["content-disposition"].startswith("attachment; filename*=UTF-8''a")
    assert back.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert back.headers["x-content-type-options"] == "nosniff"
    assert back.headers["content-length"] == "25"
    assert "content-encoding" not in back.headers


async def test_a_picture_has_a_view_once_it_was_looked_at(web: Web):
    kept = await upload(web, "a.png", png(), "image/png")
    assert (await web.client.get(f"/api/files/{kept['id']}/view", headers=BEARER)).status_code == 404
    await answer_to(web, await send(web, "what is it?", files=[kept["id"]]))
    view = await web.client.get(f"/api/files/{kept['id']}/view", headers=BEARER)
    assert (view.content[:3], view.headers["content-type"]) == (b"\xff\xd8\xff", "image/jpeg")
    assert view.headers["content-security-policy"].startswith("sandbox")


async def test_a_recording_can_be_played_and_no_other_file(web: Web):
    voice = await upload(web, "voice.ogg", b"OggS\0", "audio/ogg")
    page = await upload(web, "voice.html", b"<script>alert(1)</script>", "text/html")
    sound = await web.client.get(f"/api/files/{voice['id']}/sound", headers=BEARER)
    assert (sound.content, sound.headers["content-type"]) == (b"OggS\0", "audio/ogg")
    assert sound.headers["content-security-policy"].startswith("sandbox")
    assert (await web.client.get(f"/api/files/{page['id']}/sound", headers=BEARER)).status_code == 404


@pytest.mark.parametrize(
    ("asked", "status", "range", "sent"),
    [
        ("bytes=0-1", 206, "bytes 0-1/10", b"Og"),
        ("bytes=4-", 206, "bytes 4-9/10", b"456789"),
        ("bytes=-3", 206, "bytes 7-9/10", b"789"),
        ("bytes=10-", 416, "bytes */10", b""),
        (None, 200, None, b"OggS456789"),
    ],
)
async def test_a_recording_is_sent_in_ranges_to_the_page_and_to_programs(
    web: Web, asked: str | None, status: int, range: str | None, sent: bytes
):
    voice = await upload(web, "voice.ogg", b"OggS456789", "audio/ogg")
    headers = {"Range": asked} if asked else {}
    by_token = await web.client.get(f"/api/files/{voice['id']}/sound", headers=BEARER | headers)
    async with web.sign_in() as browser:
        by_page = await browser.get(f"/chat/files/{voice['id']}/sound", headers=headers)
    for answer in (by_token, by_page):
        assert (answer.status_code, answer.headers.get("content-range"), answer.content) == (status, range, sent)
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert status == 416 or by_page.headers["content-security-policy"].startswith("sandbox")


async def test_a_recording_that_is_swapped_for_a_link_is_not_followed(web: Web, monkeypatch: pytest.MonkeyPatch):
    voice = await upload(web, "voice.ogg", b"OggS456789", "audio/ogg")
    opened = web_files._opened

    def swapped(root: Path, path: WorkspacePath) -> tuple[BinaryIO, int]:
        found = opened(root, path)
        (root / str(path)).unlink()
        (root / str(path)).symlink_to("/etc/passwd")
        return found

    monkeypatch.setattr(web_files, "_opened", swapped)
    answer = await web.client.get(f"/api/files/{voice['id']}/sound", headers=BEARER | {"Range": "bytes=0-3"})
    assert (answer.status_code, answer.content) == (206, b"OggS")


async def test_a_file_that_is_gone_from_the_disk_is_not_there(web: Web):
    kept = await upload(web, "a.txt", b"words")
    (web.path.workspace / str(kept["path"])).unlink()
    (web.path.workspace / str(kept["path"])).symlink_to("/etc/passwd")
    assert (await web.client.get(f"/api/files/{kept['id']}", headers=BEARER)).status_code == 404


async def test_files_of_others_are_not_handed_out_and_cannot_be_sent(web: Web):
    async with web.path.database.connection() as conn:
        other = await principals.ensure_member(conn, "Bo", "telegram:7")
        row = await files.keep(
            conn, other, "uploads/x.txt", size=1, mime="", sha256="", label=Label.KNOWN, origin="telegram"
        )
    for path in (f"/api/files/{row.id}", f"/api/files/{row.id}/view", f"/api/files/{row.id}/sound"):
        assert (await web.client.get(path, headers=BEARER)).status_code == 404
    body = {"text": "read it", "client_id": "1", "files": [str(row.id)]}
    answer = await web.client.post("/api/messages", json=body, headers=BEARER)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "files")


@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
async def test_a_file_that_is_too_large_is_refused_with_the_limit(web: Web, told: bool):
    content = b"x" * (MOST + 100_000)
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n' + content + b"\r\n--b--\r\n"

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 65536):
            yield body[at : at + 65536]

    headers = {**BEARER, "Content-Type": "multipart/form-data; boundary=b"}
    answer = await web.client.post("/api/files", content=body if told else pieces(), headers=headers)
    assert answer.status_code == 413
    assert "1 MB" in answer.json()["error"]["message"]
    assert "\n" not in answer.json()["error"]["message"]
    assert [path for path in (web.path.workspace / "uploads").rglob("*") if path.is_file()] == []


NAMED = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
PART = NAMED + b"words\r\n"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=b", PART),
        ("multipart/form-data; boundary=b", PART + PART + b"--b--\r\n"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--b--\r\n'),
        ("multipart/form-data; boundary=b", b"nothing of the kind"),
        ("multipart/form-data; boundary=b", b""),
        ("multipart/form-data; boundary=" + "b" * 300, PART),
        ("multipart/form-data", PART),
        ("application/json", b"{}"),
        ("", b"words"),
    ],
)
async def test_what_is_not_one_whole_file_is_refused_and_leaves_nothing(web: Web, kind: str, body: bytes):
    answer = await web.client.post("/api/files", content=body, headers={**BEARER, "Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_upload")
    assert [path for path in (web.path.workspace / "uploads").rglob("*") if path.is_file()] == []


async def test_other_fields_of_the_form_are_passed_over(web: Web):
    files = {"note": (None, "a word"), "file": ("a.txt", b"words", "text/plain")}
    answer = await web.client.post("/api/files", files=files, headers=BEARER)
    assert (answer.status_code, answer.json()["size"]) == (201, 5)


async def test_a_client_that_falls_silent_is_given_up(web: Web, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_guard, "BODY_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    head = f"POST /api/files HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {BEARER['Authorization']}\r\n"
    kind = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 5000\r\n\r\n"
    writer.write(head.encode() + kind.encode() + NAMED)
    async with asyncio.timeout(10):
        assert b" 408 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_a_message_may_be_nothing_but_files_and_says_how_they_are(web: Web):
    one, two = await upload(web, "a.txt", b"one"), await upload(web, "b.png", png()[:60], "image/png")
    async with events(web) as stream:
        await until(stream, "snapshot")
        sent = await send(web, "", files=[one["id"], two["id"], one["id"]])
        assert sent["kind"] == "message"
        told = await until(stream, "turn_ended")
    seen = [message for event in told for message in event.get("messages", [event.get("message")]) if message]
    files = [message["files"] for message in seen if isinstance(message, dict) and message["kind"] == "user"][-1]
    assert [(file["name"], file["state"], file["path"]) for file in files] == [
        ("a.txt", "stored", one["path"]),
        ("b.png", "stored", two["path"]),
    ]
    assert files[0]["problem"] == ""
    assert files[1]["problem"] not in {"", "it has not been read yet"}


async def test_the_files_that_the_agent_sends_come_with_the_answer(web: Web):
    (web.path.workspace / "report.txt").write_text("words")
    web.model.says(ToolCall("c1", "send_file", '{"path": "report.txt"}'))
    web.model.says("There it is.")
    answer = await answer_to(web, await send(web, "send me the report"))
    [file] = answer["files"]
    assert (answer["text"], file["name"], file["path"]) == ("There it is.", "report.txt", "report.txt")
    assert (await web.client.get(f"/api/files/{file['id']}", headers=BEARER)).content == b"words"


async def test_too_many_files_are_refused(web: Web):
    body = {"text": "", "client_id": "1", "files": ["6f2c1f0e-0000-4000-8000-000000000000"] * 21}
    assert (await web.client.post("/api/messages", json=body, headers=BEARER)).status_code == 400


async def test_uploading_needs_the_scope_chat_and_reading_the_scope_read(web: Web):
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "talker", ["chat"])
    talker = {"Authorization": f"Bearer {plain}"}
    answer = await web.client.post("/api/files", files={"file": ("a.txt", b"words")}, headers=talker)
    assert answer.status_code == 201
    assert (await web.client.get(f"/api/files/{answer.json()['id']}", headers=talker)).status_code == 403


async def test_the_page_uploads_with_its_cookie_and_sends_what_it_uploaded(web: Web):
    async with web.sign_in() as browser:
        kept = (await browser.post("/chat/files", files={"file": ("a.txt", b"words")})).json()
        assert (await browser.get(f"/chat/files/{kept['id']}")).content == b"words"
        assert (await browser.get(f"/chat/files/{kept['id']}/view")).status_code == 404
        sent = await browser.post("/chat", data={"client_id": "1", "files": [kept["id"]]})
        assert sent.json()["kind"] == "message"
    rows = await web.path.rows("select name, state, channel from attachments")
    assert rows == [("a.txt", "stored", "web")]


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
async def test_a_foreign_page_cannot_upload(web: Web, origin: str):
    async with web.sign_in() as browser:
        answer = await browser.post("/chat/files", files={"file": ("a.txt", b"words")}, headers={"Origin": origin})
    assert answer.status_code == 403


async def test_a_file_that_grows_under_way_is_as_long_as_was_said(web: Web, monkeypatch: pytest.MonkeyPatch):
    kept = await upload(web, "log.txt", b"x" * 1000)
    opened = web_files._opened

    def growing(root: Path, path: WorkspacePath) -> tuple[BinaryIO, int]:
        found = opened(root, path)
        (root / str(path)).write_bytes(b"x" * 5000)
        return found

    monkeypatch.setattr(web_files, "_opened", growing)
    back = await web.client.get(f"/api/files/{kept['id']}", headers=BEARER)
    assert (len(back.content), back.headers["content-length"]) == (1000, "1000")
