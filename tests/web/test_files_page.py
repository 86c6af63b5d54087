"""The screen Files: what it shows, and what it lets a browser do."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.domain.principals import Label
from gateway.ingest.output import LOCKED as PASSWORD_NEEDED
from gateway.store.files import files
from gateway.web.files import as_before, even_breaks, locked_lines
from gateway.workspace.files import copies
from tests.ingest.samples import unlockable_pdf
from tests.web.conftest import Web
from tests.web.uploading import png

LOCKED = "# Rules\n<!-- CORE:LOCK -->\nNever lie.\n<!-- /CORE:LOCK -->\n<!-- AI:OPEN -->\nfree\n<!-- /AI:OPEN -->\n"


def put(web: Web, path: str, content: str | bytes) -> Path:
    file = web.backend.files.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()


async def label(web: Web, path: str) -> Label:
    content = (web.backend.files.root / path).read_bytes()
    return await web.backend.files.workspace.labels.of(path, sha256(content))


async def test_the_tree_opens_what_is_shown_and_marks_locked_files(web: Web):
    put(web, "rules.md", LOCKED)
    put(web, "notes/deep/a.md", "# Hello\n\n<b>raw</b> ![x](https://evil.example/p.png)")
    put(web, "notes/people.csv", "Name,Age\nBo,7")
    put(web, "other/b.txt", "b")
    (web.backend.files.root / "link").symlink_to("rules.md")
    async with web.sign_in() as browser:
        page = (await browser.get("/files", params={"path": "notes/deep/a.md"})).text
        sheet = (await browser.get("/files", params={"path": "notes/people.csv"})).text
        below = (await browser.get("/files/tree", params={"path": "other"})).text
        nowhere = await browser.get("/files/tree", params={"path": "../.."})

    assert "<h1>Hello</h1>" in page
    assert "<b>raw</b>" not in page
    assert "<img" not in page.partition("<main>")[2]
    assert 'href="/files?path=notes/deep/a.md" aria-current="page"' in page
    assert "<td>Bo</td>" in sheet
    assert 'data-load="/files/tree?path=other"' in page
    assert '<span class="badge pinned">locked</span>' in page
    assert "link or device" in page
    assert "b.txt" not in page
    assert "b.txt" in below
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (409, "bad_path")


async def test_an_empty_workspace_and_a_missing_file_say_so(web: Web):
    async with web.sign_in() as browser:
        (empty := web.backend.files.root / "empty").mkdir()
        assert empty.is_dir()
        assert "This folder is empty." in (await browser.get("/files", params={"path": "empty"})).text
        answer = await browser.get("/files", params={"path": "empty/gone.md"})
        assert (answer.status_code, answer.headers["location"].partition("?")[2]) == (303, "path=empty")
        assert "No checkpoints yet" in (await browser.get("/files/checkpoints")).text


async def test_only_signed_in_browsers_see_files(web: Web):
    put(web, "a.md", "mine")
    for path in ("/files", "/files/checkpoints"):
        assert (await web.client.get(path, headers=web.at_page)).headers["location"] == "/login"
    for path in ("/files/download?path=a.md", "/files/zip", "/files/tree?path=.", "/files/picture?path=a.md"):
        assert (await web.client.get(path, headers=web.at_page)).status_code == 401


async def test_an_edit_is_saved_only_over_what_was_read(web: Web):
    file = put(web, "rules.md", LOCKED)
    form = {
        "path": "rules.md",
        "sha256": sha256(LOCKED),
        "content": LOCKED.replace("lie", "cheat").replace("\n", "\r\n"),
    }
    async with web.sign_in() as browser:
        shown = (await browser.get("/files", params={"path": "rules.md"})).text
        assert "CORE:LOCK, lines 1–5, 7" in shown
        assert (await browser.post("/files/save", data=form)).status_code == 204
        assert file.read_text() == LOCKED.replace("lie", "cheat")
        late = await browser.post("/files/save", data=form)
        gone = await browser.post("/files/save", data={**form, "path": "gone.md"})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "changed")
    assert gone.status_code == 404
    assert file.read_text() == LOCKED.replace("lie", "cheat")


async def test_an_edit_of_others_text_stays_untrusted_until_the_owner_vouches(web: Web):
    put(web, "uploads/2026-01-01/letter.txt", "from a stranger")
    path = "uploads/2026-01-01/letter.txt"
    async with web.sign_in() as browser:
        assert "not verified" in (await browser.get("/files", params={"path": path})).text
        form = {"path": path, "sha256": sha256("from a stranger"), "content": "from a stranger!"}
        assert (await browser.post("/files/save", data=form)).status_code == 204
        assert await label(web, path) is Label.UNTRUSTED
        stale = await browser.post("/files/vouch", data={"path": path, "sha256": sha256("from a stranger")})
        assert stale.status_code == 409
        form = {"path": path, "sha256": sha256("from a stranger!")}
        assert (await browser.post("/files/vouch", data=form)).status_code == 204
    assert await label(web, path) is Label.OWNER


async def test_a_new_file_is_the_owners_and_never_replaces_one(web: Web):
    async with web.sign_in() as browser:
        form = {"path": "new/ideas.md", "content": "one\r\ntwo"}
        assert (await browser.post("/files/save", data=form)).status_code == 204
        again = await browser.post("/files/save", data=form)
    assert (web.backend.files.root / "new/ideas.md").read_bytes() == b"one\ntwo"
    assert again.json()["error"]["code"] == "exists"
    assert await label(web, "new/ideas.md") is Label.OWNER


async def test_an_upload_is_untrusted_and_never_overwrites(web: Web):
    file = put(web, "notes/a.md", "mine")
    async with web.sign_in() as browser:

        async def send(name: str, content: bytes, folder: str = "notes") -> int:
            files = {"file": (name, content, "text/html")}
            return (await browser.post("/files/upload", params={"path": folder}, files=files)).status_code

        assert await send("b.html", b"<script>alert(1)</script>") == 204
        assert await send("C:\\evil\\..\\c.md", b"c") == 204
        assert await send("a.md", b"theirs") == 409
        assert await send("x.md", b"x", "sessions") == 409
        assert await send("../../x.md", b"x", "../..") == 409
        assert await send("big.bin", b"x" * (1024 * 1024 + 1)) == 413
    assert file.read_text() == "mine"
    assert sorted(path.name for path in (web.backend.files.root / "notes").iterdir()) == ["a.md", "b.html", "c.md"]
    assert await label(web, "notes/b.html") is Label.UNTRUSTED
    assert [path.name for path in (web.backend.files.root / "uploads").iterdir()] == []


async def test_nothing_is_served_that_a_browser_would_run(web: Web):
    put(web, "page.html", "<script>alert(1)</script>")
    put(web, "drawing.svg", '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    put(web, "fake.png", "<script>alert(1)</script>")
    put(web, "real.png", png())
    async with web.sign_in() as browser:
        for name in ("page.html", "drawing.svg", "fake.png"):
            answer = await browser.get("/files/download", params={"path": name})
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"].startswith("attachment")
            assert "sandbox" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert (await browser.get("/files/picture", params={"path": name})).status_code == 404
            assert "<script>alert" not in (await browser.get("/files", params={"path": name})).text
        shown = await browser.get("/files/picture", params={"path": "real.png"})
        assert (shown.headers["content-type"], shown.content) == ("image/png", png())
        assert "sandbox" in shown.headers["content-security-policy"]
        assert 'src="/files/picture?path=real.png"' in (await browser.get("/files", params={"path": "real.png"})).text


async def test_a_folder_comes_as_a_zip(web: Web, monkeypatch: pytest.MonkeyPatch):
    put(web, "notes/a.md", "one")
    put(web, "notes/deep/b.bin", bytes(range(256)) * 4000)
    put(web, "else.md", "not in it")
    (web.backend.files.root / "notes" / "link").symlink_to("/etc/passwd")
    async with web.sign_in() as browser:
        answer = await browser.get("/files/zip", params={"path": "notes"})
        monkeypatch.setattr(copies, "MAX_ZIP_FILES", 1)
        refused = await browser.get("/files/zip", params={"path": "notes"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["a.md", "deep/b.bin"]
        assert archive.read("deep/b.bin") == bytes(range(256)) * 4000
    assert answer.headers["content-disposition"].endswith("notes.zip")
    assert refused.json()["error"]["code"] == "too_large"


async def test_a_move_and_a_deletion_can_be_undone(web: Web):
    file = put(web, "notes/a.md", LOCKED)
    put(web, "notes/b.md", "b")
    async with web.sign_in() as browser:
        taken = await browser.post("/files/move", data={"path": "notes/a.md", "to": "notes/b.md"})
        assert taken.json()["error"]["code"] == "exists"
        assert (await browser.post("/files/move", data={"path": "notes/a.md", "to": "moved/a.md"})).status_code == 204
        assert (await browser.post("/files/delete", data={"path": "moved/a.md"})).status_code == 204
        assert not (web.backend.files.root / "moved").exists()
        gone = await browser.post("/files/delete", data={"path": "moved/a.md"})
        assert gone.status_code == 404
        rows = await web.backend.files.checkpoints.listing(9)
        assert [row.reason for row in rows] == ["before a deletion", "before a move"]
        first = rows[-1].id
        shown = (await browser.get(f"/files/checkpoints/{first}")).text
        assert "removed" in shown
        assert "notes/a.md" in shown
        lines = (await browser.get(f"/files/checkpoints/{first}/lines", params={"path": "notes/a.md"})).text
        assert "-Never lie." in lines
        assert (
            await browser.post(f"/files/checkpoints/{first}/restore", data={"path": "notes/a.md"})
        ).status_code == 204
        assert file.read_text() == LOCKED
        assert (await browser.get("/files/checkpoints/zzzz")).status_code == 409


@pytest.mark.parametrize(
    "path", ["sessions/2026/a.md", "memory/x.md", "todo/todo.md", "", "../x", "/etc/passwd", "a\0b"]
)
async def test_what_the_gateway_writes_stays_its_own(web: Web, path: str):
    async with web.sign_in() as browser:
        for action, more in (
            ("save", {"content": "x"}),
            ("vouch", {"sha256": "0"}),
            ("delete", {}),
            ("move", {"to": "x.md"}),
        ):
            answer = await browser.post(f"/files/{action}", data={"path": path, **more})
            assert answer.status_code in {400, 409}, action
        answer = await browser.post("/files/move", data={"path": "a.md", "to": path})
        assert answer.status_code in {400, 409}


def test_line_breaks_stay_as_they_were():
    assert [even_breaks(text) for text in ("a\nb", "a\r\nb\r\n", "a\r\nb\n", "a\rb", "")] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert as_before("a\r\nb", "x\r\n") == "a\r\nb"
    assert as_before("a\r\nb", "x\n") == "a\nb"


def test_locked_lines_are_named():
    assert locked_lines(LOCKED.encode()) == ["1–5", "7"]
    assert locked_lines(b"nothing\n") == []


async def test_the_owner_unlocks_a_file_with_its_password(web: Web):
    locked = unlockable_pdf("The code is 4711.", b"sesame 9")
    put(web, "uploads/a.pdf", locked)
    async with web.path.database.connection() as conn:
        row = await files.keep(
            *(conn, web.backend.owner.id, "uploads/a.pdf"),
            size=len(locked),
            mime="application/pdf",
            sha256=sha256(locked),
            label=Label.UNTRUSTED,
            origin="telegram",
        )
        await files.derived(conn, row.id, problem=PASSWORD_NEEDED)
    asked = {"path": "uploads/a.pdf"}
    with capture_logs() as logs:
        async with web.sign_in() as browser:
            assert 'action="/files/unlock"' in (await browser.get("/files", params=asked)).text
            wrong = await browser.post("/files/unlock", data={**asked, "password": "sesame 8"})
            assert (await browser.post("/files/unlock", data={**asked, "password": "sesame 9"})).status_code == 204
            assert 'action="/files/unlock"' not in (await browser.get("/files", params=asked)).text
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (
        409,
        "the password of uploads/a.pdf is wrong; nothing was read",
    )
    assert "4711" in (web.backend.files.root / "uploads/a.pdf.txt").read_text()
    assert await label(web, "uploads/a.pdf.txt") is Label.UNTRUSTED
    assert "sesame" not in str(logs)
