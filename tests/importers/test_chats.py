import json
import sqlite3
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.domain.memory.imports import Damaged, Passed
from gateway.domain.principals import Label
from gateway.importers import discover
from tests.importers.reads import damage, memories, messages, read, sessions
from tests.importers.test_markdown import written

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(role: str, *parts: Any, kind: str = "text", **more: Any) -> dict[str, Any]:
    return {
        "author": {"role": role},
        "content": {"content_type": kind, "parts": list(parts)},
        "create_time": NOON.timestamp(),
        **more,
    }


def chatgpt(key: str, *chain: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    mapping = {
        f"{key}{number}": {"message": message, "parent": f"{key}{number - 1}" if number else None}
        for number, message in enumerate(chain)
    }
    return {"title": key, "mapping": mapping, "current_node": list(mapping)[-1], "conversation_id": key, **more}


def claude(key: str, *said: dict[str, Any]) -> dict[str, Any]:
    return {"uuid": key, "name": key, "created_at": NOON.isoformat(), "chat_messages": list(said)}


def test_of_a_chatgpt_conversation_the_branch_that_was_shown_last(tmp_path: Path) -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    conversation = chatgpt(
        "c",
        None,
        said("system", ""),
        said("user", "What is it?", picture, kind="multimodal_text"),
        said("assistant", "search('cat')", kind="code", recipient="browser"),
        said("tool", "a cat"),
        said("assistant", ""),
        said("assistant", "A cat."),
    )
    conversation["mapping"]["other"] = {"message": said("assistant", "A dog."), "parent": "c2"}
    found = read("chatgpt", written(tmp_path, "conversations.json", json.dumps([conversation])))

    assert [(each.role, each.text, each.at, each.key) for each in messages(found)] == [
        ("user", "What is it?\n[image]", NOON, "c2"),
        ("assistant", "A cat.", NOON, "c6"),
    ]
    assert found.count(Passed("of the system or a tool")) == 3
    assert found.count(Passed("messages of other branches")) == 1
    assert found.count(Passed("empty")) == 1


def test_canvases_memories_and_instructions_of_chatgpt_are_kept_and_marks_of_citations_are_not(tmp_path: Path) -> None:
    canvas, edit = {"name": "Plan", "content": "# A"}, {"updates": [{"pattern": "A", "replacement": "B"}]}
    mine = {"content_type": "user_editable_context", "user_profile": "Lives in Lisbon", "user_instructions": "Be brief"}
    conversation = chatgpt(
        "c",
        {"author": {"role": "user"}, "content": mine},
        said("assistant", json.dumps(canvas), kind="code", recipient="canmore.create_textdoc"),
        said("assistant", json.dumps(edit), kind="code", recipient="canmore.update_textdoc"),
        said("assistant", "Has a dog", recipient="bio"),
        said(
            "assistant",
            'In \ue200entity\ue202["city","Lisbon"]\ue201 it is.\ue200cite\ue202turn0search1\ue201【3†source】',
        ),
    )
    found = read("chatgpt", written(tmp_path, "conversations.json", json.dumps([conversation])))

    assert [each.text for each in messages(found)] == ["[canvas: Plan]\n# A", "In Lisbon it is."]
    assert found.count(Passed("edits of canvases")) == 1
    assert [(each.text, each.proposed) for each in memories(found)] == [
        ("Lives in Lisbon", True),
        ("Be brief", True),
        ("Has a dog", False),
    ]


def test_all_parts_of_a_claude_export_are_imported_or_counted_by_name(tmp_path: Path) -> None:
    export = tmp_path / "export.zip"
    artifact = {"type": "tool_use", "name": "artifacts", "input": {"title": "Lease", "content": "14 weeks"}}
    edit = {"type": "tool_use", "name": "artifacts", "input": {"command": "update", "old_str": "14", "new_str": "15"}}
    pasted = {"uuid": "1", "sender": "human", "attachments": [{"file_name": "", "extracted_content": "Only pasted"}]}
    talk = claude("c", pasted, {"uuid": "2", "sender": "assistant", "content": [artifact, edit]})
    project = {"uuid": "p", "name": "Studio", "prompt_template": "Answer in Dutch.", "docs": [{"content": "31 m2"}]}
    with zipfile.ZipFile(export, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([talk]))
        archive.writestr("projects/p.json", json.dumps(project))
        archive.writestr("memories.json", json.dumps([{"conversations_memory": "Rents a studio."}]))
        archive.writestr("users.json", "[]")
        archive.writestr("a.png", b"")

    found = read("all", export)

    assert [(each.text, each.label) for each in messages(found)] == [
        ("Only pasted", Label.KNOWN),
        ("[artifact: Lease]\n14 weeks", Label.OWNER),
        ("[file: ]\n31 m2", Label.KNOWN),
    ]
    assert [(each.text, each.proposed) for each in memories(found)] == [
        ("Studio: Answer in Dutch.", True),
        ("Rents a studio.", False),
    ]
    assert [each.why for each in found if isinstance(each, Passed)] == [
        "edits of artifacts",
        "users.json",
        ".png files",
    ]


def test_a_branch_that_bites_its_tail_ends(tmp_path: Path) -> None:
    conversation = chatgpt("c", said("user", "one"), said("user", "two"))
    conversation["mapping"]["c0"]["parent"] = "c1"

    found = read("chatgpt", written(tmp_path, "conversations.json", json.dumps([conversation])))

    assert [each.text for each in messages(found)] == ["one", "two"]


def test_a_claude_conversation_with_its_attachments(tmp_path: Path) -> None:
    conversation = claude(
        "c",
        {"uuid": "1", "sender": "human", "text": "Read it", "created_at": "2026-03-01T12:00:00Z",
         "attachments": [{"file_name": "plan.txt", "extracted_content": "The rent is 640."}], "files": []},
        {"uuid": "2", "sender": "assistant", "text": "old form", "created_at": "never",
         "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Done."}]},
        {"uuid": "3", "sender": "human", "text": "", "content": []},
        {"uuid": "4"},
    )  # fmt: skip
    found = read("claude", written(tmp_path, "conversations.json", json.dumps([conversation], indent=1)))

    assert [(each.role, each.text, each.at, each.key) for each in messages(found)] == [
        ("user", "Read it\n[file: plan.txt]\nThe rent is 640.", NOON, "1"),
        ("assistant", "Done.", None, "2"),
    ]
    assert damage(found) == [Damaged("conversations.json:2 (c)", "a message has no sender; skipped")]


def test_what_is_damaged_is_told_with_its_line_and_the_rest_is_kept(tmp_path: Path) -> None:
    good = [json.dumps(chatgpt(key, said("user", f"in {key}"))) for key in "abcdefg"]
    lost_quote = good[1].replace('"in b"', '"in b')
    lost_brace = good[3].replace("}", "", 1)
    parts = [good[0], lost_quote, good[2], lost_brace, good[4], '{"title": "no chat"}', "### 17", good[5], good[6][:-9]]
    found = read("chatgpt", written(tmp_path, "conversations.json", "[" + ",\n".join(parts)))

    assert [each.text for each in messages(found)] == ["in a", "in c", "in e", "in f"]
    assert [each.place for each in damage(found)] == [f"conversations.json:{line}" for line in (2, 4, 6, 9)]
    assert "incomplete" in damage(found)[-1].why


def test_an_object_larger_than_may_be_held_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.importers.records.files.MAX_OBJECT_BYTES", 1 << 20)
    large = [
        chatgpt("a", said("user", "small")),
        chatgpt("b", said("user", "x" * (4 << 20))),
        chatgpt("c", said("user", "y")),
    ]

    found = read("chatgpt", written(tmp_path, "conversations.json", json.dumps(large)))

    assert [each.text for each in messages(found)] == ["small", "y"]
    assert [each.why for each in damage(found)] == ["item 2 is larger than 1 MiB; skipped"]


def test_a_zip_is_read_as_it_was_downloaded(tmp_path: Path) -> None:
    export = tmp_path / "export.zip"
    with zipfile.ZipFile(export, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("2026/conversations.json", json.dumps([chatgpt("c", said("user", "zipped"))]))

    assert [each.text for each in messages(read("all", export))] == ["zipped"]


def test_a_zip_bomb_is_refused_after_what_it_says_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.importers.records.files.FREE_EXPANSION", 1 << 20)
    export = tmp_path / "export.zip"
    with zipfile.ZipFile(export, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", "[" + " " * (64 << 20) + "]")

    with pytest.raises(OwnerMustAct, match="expands to more than 100 times its size; unpack it"):
        read("chatgpt", export)


def test_a_damaged_zip_is_told(tmp_path: Path) -> None:
    export = tmp_path / "export.zip"
    with zipfile.ZipFile(export, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([chatgpt("c", said("user", "zipped " * 99))]))
    data = bytearray(export.read_bytes())
    data[60:80] = bytes(20)
    export.write_bytes(data)

    with pytest.raises(OwnerMustAct, match="is a damaged ZIP"):
        read("chatgpt", export)


def event(id: str, role: str, content: Any) -> str:
    message = {"role": role, "content": content}
    return json.dumps({"type": "message", "id": id, "timestamp": "2026-03-01T12:00:00Z", "message": message})


EVENTS = [
    json.dumps({"type": "session", "id": "s1"}),
    event("1", "user", "Hello"),
    event("2", "assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi."}]),
    event("3", "toolResult", [{"type": "text", "text": "0"}]),
    event("4", "assistant", "HEARTBEAT_OK"),
]


def test_an_openclaw_workspace_with_sessions_of_both_forms(tmp_path: Path) -> None:
    workspace, agent = tmp_path / "workspace", tmp_path / "agents" / "main"
    for folder in (workspace / "memory", agent / "agent", agent / "sessions"):
        folder.mkdir(parents=True)
    written(workspace, "MEMORY.md", "- Likes tea\n")
    written(workspace, "TODO.md", "- [ ] Call Bo\n")
    written(workspace / "memory", "2026-03-01.md", "A walk.\n")
    written(agent / "sessions", "s0.jsonl", "\n".join(["{broken", *EVENTS, ""]))
    written(agent / "sessions", "s1.jsonl", event("9", "user", "an older copy of what the database has"))
    with sqlite3.connect(agent / "agent" / "openclaw-agent.sqlite") as database:
        database.execute("create table transcript_events (session_id text, seq integer, event_json text)")
        rows = [("s1", number, text) for number, text in enumerate(EVENTS)]
        database.executemany("insert into transcript_events values (?, ?, ?)", rows)

    for path in (workspace, tmp_path):
        found = read("all", path)

        assert [each.key for each in sessions(found)] == ["2026-03-01  1", "s1", "s0"]
        assert [each.text for each in messages(found)] == ["A walk.", "Hello", "Hi.", "Hello", "Hi."]
        assert [each.at for each in messages(found)[1:]] == [NOON] * 4
        assert [each.place for each in damage(found)] == ["s0.jsonl:1"]


def test_undated_notes_and_the_user_are_facts_and_instructions_are_counted(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    written(tmp_path / "memory", "projects.md", "- Falcon ships in May\n")
    written(tmp_path / "memory", "2026-03-01.md", "A walk.\n")
    written(tmp_path / "memory", "index.bin", "x")
    written(tmp_path, "USER.md", "# User\n- Name: Ada\n")
    written(tmp_path, "SOUL.md", "Be kind.\n")

    found = read("openclaw", tmp_path)

    assert [each.text for each in memories(found)] == ["Falcon ships in May", "Name: Ada"]
    assert [each.text for each in messages(found)] == ["A walk."]
    assert [each.why for each in found if isinstance(each, Passed)] == ["SOUL.md", "index.bin"]


def test_hermes_and_nanobot_folders(tmp_path: Path) -> None:
    hermes, nanobot = tmp_path / "hermes", tmp_path / "nanobot"
    (hermes / "memories").mkdir(parents=True)
    (nanobot / "workspace" / "memory").mkdir(parents=True)
    (nanobot / "sessions").mkdir()
    written(hermes / "memories", "MEMORY.md", "Uses Rust\n§\nThis machine runs Ubuntu\nand Docker\n")
    with sqlite3.connect(hermes / "state.db") as database:
        database.execute("create table messages (id integer, session_id text, role text, content text, timestamp real)")
        rows = [(1, "s", "user", "Hello", NOON.timestamp()), (2, "s", "tool", "{}", 0), (3, "s", "assistant", "Hi", 0)]
        database.executemany("insert into messages values (?, ?, ?, ?, ?)", rows)
    written(nanobot / "workspace" / "memory", "HISTORY.md", "[2026-03-01 12:00] Asked for tea.\n")
    line = {"role": "user", "content": "Hello", "timestamp": "2026-03-01T12:00:00"}
    written(nanobot / "sessions", "cli.jsonl", json.dumps({"_type": "metadata"}) + "\n" + json.dumps(line))

    found = read("all", hermes)
    assert [each.text for each in memories(found)] == ["Uses Rust", "This machine runs Ubuntu\nand Docker"]
    assert [(each.role, each.text, each.at) for each in messages(found)] == [
        ("user", "Hello", NOON),
        ("assistant", "Hi", None),
    ]
    found = read("all", nanobot)
    assert [each.text for each in memories(found)] == ["HISTORY: [2026-03-01 12:00] Asked for tea."]
    assert [(each.text, each.at) for each in messages(found)] == [("Hello", NOON)]


def test_a_database_that_is_none_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "agents" / "main" / "agent").mkdir(parents=True)
    written(tmp_path / "agents" / "main" / "agent", "openclaw-agent.sqlite", b"SQLite format 3\0" + b"x" * 5000)
    written(tmp_path, "MEMORY.md", "- Likes tea\n")

    found = read("openclaw", tmp_path)

    assert [each.place for each in damage(found)] == ["openclaw-agent.sqlite"]
    assert len(found) == 2


def test_what_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OwnerMustAct, match=r"nothing to import was found in .*memory-md: a MEMORY\.md"):
        read("all", tmp_path)
    with pytest.raises(OwnerMustAct, match="does not exist"):
        read("chatgpt", tmp_path / "nowhere")
    with pytest.raises(OwnerMustAct, match="is not a text file"):
        read("memory-md", written(tmp_path, "MEMORY.md", b"\x89PNG\0\0"))


def test_a_zip_whose_content_is_damaged_matches_no_source(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", "".join(f"{number} " for number in range(20_000)))
    raw = bytearray(path.read_bytes())
    raw[100:200] = bytes(100)
    path.write_bytes(raw)

    assert [name for name, source in discover().items() if source.matches(path)] == []
