import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dulwich.objects import Blob, Commit, Tree

from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.workspace.checkpoints import history
from gateway.workspace.checkpoints import jobs as checkpoints
from gateway.workspace.checkpoints import store as stores
from gateway.workspace.files import disk


class Place:
    """A workspace and its checkpoints."""

    def __init__(self, home: Path) -> None:
        self.root = home / "workspace"
        self.root.mkdir()
        self.store = home / "data" / "checkpoints"

    def write(self, path: str, text: str = "text", mode: int | None = None) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if mode is not None:
            file.chmod(mode)
        return file

    def commit(self, reason: str = "timer", last_message: int | None = None) -> dict:
        return checkpoints.commit(str(self.root), str(self.store), last_message, reason)

    def rows(self, limit: int = 100) -> list[dict]:
        return checkpoints.listing(str(self.store), limit)

    def diff(self, old: str, new: str | None = None) -> list[tuple[str, str]]:
        return [(row["change"], row["path"]) for row in checkpoints.diff(str(self.root), str(self.store), old, new)]

    def restore(self, id: str, path: str | None = None) -> dict:
        return checkpoints.restore(str(self.root), str(self.store), id, path, None)

    def kept(self, id: str) -> dict[str, bytes]:
        """Path and content of a checkpoint."""
        with stores.open_store(self.store) as store:
            files = history.contents(store, store.find(id))
            return {path: store.objects[entry.id].as_raw_string() for path, entry in files.items()}

    def now(self) -> dict[str, tuple[int, bytes]]:
        """Mode and content of every file and link there is."""
        return {
            str(path.relative_to(self.root)): (
                path.lstat().st_mode,
                os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes(),
            )
            for path in self.root.rglob("*")
            if path.is_symlink() or path.is_file()
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def settle(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the files were old when they are read next."""
    monkeypatch.setattr(disk, "UNSETTLED_NS", -(10**12))


class TestCommit:
    def test_a_checkpoint_holds_every_file_and_says_why_it_was_made(self, place: Place) -> None:
        place.write("a.md", "one")
        place.write("notes/b.md", "two")
        made = place.commit(last_message=7)

        assert (made["changes"], made["left_out"]) == ("2 added", "")
        assert place.kept(made["id"]) == {"a.md": b"one", "notes/b.md": b"two"}
        (row,) = place.rows()
        assert (row["id"], row["reason"], row["changes"], row["last_message"]) == (made["id"], "timer", "2 added", 7)

    def test_nothing_changed_is_no_checkpoint(self, place: Place) -> None:
        assert place.commit()["id"] is None
        place.write("a.md")
        place.commit()

        assert place.commit()["id"] is None
        assert len(place.rows()) == 1

    def test_changes_are_counted(self, place: Place) -> None:
        place.write("a.md")
        place.write("b.md")
        place.commit()
        place.write("a.md", "changed")
        place.write("c.md")
        (place.root / "b.md").unlink()
        made = place.commit()

        assert made["changes"] == "1 added, 1 changed, 1 removed"
        assert place.rows()[0]["changes"] == "1 added, 1 changed, 1 removed"

    def test_without_a_message_none_is_named(self, place: Place) -> None:
        place.write("a.md")
        place.commit("asked")

        assert place.rows()[0]["last_message"] is None

    @pytest.mark.parametrize("folder", ["sessions", "memory", "Sessions", "MEMORY"])
    def test_what_the_gateway_makes_again_is_not_kept(self, place: Place, folder: str) -> None:
        place.write(f"{folder}/x.md")
        place.write(f"notes/{folder}/y.md")
        place.write(".writing-0123")

        assert list(place.kept(place.commit()["id"])) == [f"notes/{folder}/y.md"]

    def test_a_link_is_kept_as_a_link_and_not_followed(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "secret").mkdir()
        (tmp_path / "secret" / "key").write_text("secret")
        (place.root / "folder").symlink_to(tmp_path / "secret")
        (place.root / "file").symlink_to("../secret/key")
        (place.root / "nowhere").symlink_to("nothing")

        assert place.kept(place.commit()["id"]) == {
            "folder": os.fsencode(tmp_path / "secret"),
            "file": b"../secret/key",
            "nowhere": b"nothing",
        }

    def test_what_cannot_be_kept_is_left_out_and_counted(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(history, "MAX_FILE_BYTES", 10)
        monkeypatch.setattr(history, "MAX_DEPTH", 2)
        place.write("exact.md", "x" * 10)
        place.write("large.md", "x" * 11)
        place.write("a/b/c/deep.md")
        os.mkfifo(place.root / "pipe")
        with socket.socket(socket.AF_UNIX) as listening:
            monkeypatch.chdir(place.root)
            listening.bind("socket")
            made = place.commit()

        assert sorted(made["left_out"].split(", ")) == ["1 too deep", "1 too large", "2 not a file"]
        assert list(place.kept(made["id"])) == ["exact.md"]

    def test_a_file_that_may_not_be_read_is_counted(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.write("a.md")
        place.write("closed.md")
        really = os.open

        def opened(path: str, flags: int, *arguments: object, **more: object) -> int:
            if path == "closed.md":
                raise PermissionError(13, "Permission denied", path)
            return really(path, flags, *arguments, **more)

        monkeypatch.setattr(os, "open", opened)
        made = place.commit()

        assert made["left_out"] == "1 unreadable"
        assert list(place.kept(made["id"])) == ["a.md"]

    def test_files_of_holes_are_left_out_whatever_their_size_and_number(self, place: Place) -> None:
        for number in range(400):
            with (place.root / f"{number}.img").open("wb") as file:
                file.truncate(64 * 1024**2)
                if number % 2:
                    file.seek(32 * 1024**2)
                    file.write(b"data")
        place.write("a.md")
        made = place.commit()

        assert made["left_out"] == "400 mostly holes"
        assert list(place.kept(made["id"])) == ["a.md"]

    def test_a_file_with_a_few_holes_is_kept(self, place: Place) -> None:
        content = os.urandom(1024**2) + bytes(512 * 1024) + os.urandom(1024**2)
        with (place.root / "some.img").open("wb") as file:
            file.write(content[: 1024**2])
            file.seek(512 * 1024, os.SEEK_CUR)
            file.write(content[-(1024**2) :])

        assert place.kept(place.commit()["id"]) == {"some.img": content}

    @pytest.mark.parametrize("name", ["lock", "HEAD", "refs/heads/main", "known-files"])
    @pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir])
    def test_a_part_of_the_store_that_was_replaced_is_made_again(
        self, place: Place, name: str, kind: Callable[[Path], None]
    ) -> None:
        place.write("a.md")
        place.commit()
        (place.store / name).unlink()
        kind(place.store / name)
        place.write("b.md")

        assert place.kept(place.commit()["id"]) == {"a.md": b"text", "b.md": b"text"}

    def test_names_that_are_no_text_are_kept(self, place: Place) -> None:
        name = os.fsdecode(b"b\xffd\n.md")
        (place.root / name).write_text("x")
        made = place.commit()

        assert place.kept(made["id"]) == {name: b"x"}
        (place.root / name).unlink()
        assert place.diff(made["id"]) == [("removed", r"b\xffd\n.md")]
        place.restore(made["id"])
        assert place.now().keys() == {name}

    def test_the_store_is_for_its_owner_only_and_git_can_read_it(self, place: Place) -> None:
        place.write("a.md", "one")
        place.write("run.sh", "x", 0o755)
        place.commit()

        assert stat.S_IMODE(place.store.stat().st_mode) == 0o700
        assert (place.store / "HEAD").read_text() == "ref: refs/heads/main\n"
        if git := shutil.which("git"):
            subprocess.run([git, "--git-dir", place.store, "fsck", "--full"], check=True, capture_output=True)

    def test_a_store_inside_the_workspace_is_refused(self, place: Place) -> None:
        place.store = place.root / "data" / "checkpoints"

        with pytest.raises(OwnerMustAct, match="inside the workspace"):
            place.commit()

    def test_a_workspace_that_is_missing_is_told(self, place: Place) -> None:
        place.write("a.md")
        place.commit()
        shutil.rmtree(place.root)

        with pytest.raises(OwnerMustAct, match="No such file"):
            place.commit()
        assert len(place.rows()) == 1


class TestReadingAgain:
    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The files that were read."""
        read: list[str] = []
        really = history._content

        def content(folder: int, name: str) -> bytes:
            read.append(name)
            return really(folder, name)

        monkeypatch.setattr(history, "_content", content)
        return read

    def test_a_file_is_read_once(self, place: Place, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        settle(place, monkeypatch)
        place.write("a.md")
        place.write("b.md")
        place.commit()
        place.write("b.md", "longer than before")
        read.clear()
        made = place.commit()

        assert read == ["b.md"]
        assert place.kept(made["id"]) == {"a.md": b"text", "b.md": b"longer than before"}

    def test_a_young_file_is_read_again(self, place: Place, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disk, "UNSETTLED_NS", 10**12)
        place.write("a.md")
        place.commit()
        place.commit()

        assert read == ["a.md", "a.md"]

    def test_a_change_that_hides_its_time_is_found(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        settle(place, monkeypatch)
        file = place.write("a.md", "one")
        times = file.stat()
        place.commit()
        time.sleep(0.02)
        file.write_text("two")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

        assert place.kept(place.commit()["id"]) == {"a.md": b"two"}

    @pytest.mark.parametrize("damage", ["", "{", "[]", '{"0": {}}'])
    def test_a_damaged_memory_costs_only_time(self, place: Place, damage: str) -> None:
        place.write("a.md", "one")
        place.commit()
        (place.store / "known-files").write_text(damage)
        place.write("b.md", "two")

        assert place.kept(place.commit()["id"]) == {"a.md": b"one", "b.md": b"two"}

    def test_what_one_checkpoint_may_not_read_the_next_ones_do(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settle(place, monkeypatch)
        monkeypatch.setattr(history, "MAX_NEW_BYTES", 10)
        for name in "abcd":
            place.write(f"{name}.md", name * 5)
        made = [place.commit() for _ in range(3)]

        assert [each["left_out"] for each in made] == ["2 left for the next checkpoint", "", ""]
        assert [each["changes"] for each in made] == ["2 added", "2 added", ""]
        assert len(place.kept(made[1]["id"])) == 4

    def test_what_is_left_for_later_or_cannot_be_read_stays_as_it_was_kept(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.write("a.md", "one")
        place.commit()
        place.write("a.md", "two")
        place.write("b.md", "x")
        monkeypatch.setattr(history, "MAX_NEW_BYTES", 2)
        made = place.commit()

        assert (made["changes"], made["left_out"]) == ("1 added", "1 left for the next checkpoint")
        assert place.kept(made["id"]) == {"a.md": b"one", "b.md": b"x"}
        (place.store / "known-files").unlink()
        assert (place.commit()["changes"], place.rows()[0]["id"]) == ("", made["id"])
        monkeypatch.undo()
        assert place.kept(place.commit()["id"]) == {"a.md": b"two", "b.md": b"x"}

    def test_reading_ends_in_time(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(history, "MAX_SECONDS", -1.0)
        place.write("a.md")

        assert place.commit()["left_out"] == "1 left for the next checkpoint"

    def test_hard_links_are_read_once(self, place: Place, read: list[str]) -> None:
        file = place.write("a.md")
        for number in range(5):
            os.link(file, place.root / f"{number}.md")

        assert len(place.kept(place.commit()["id"])) == 6
        assert len(read) == 1

    def test_a_restore_leaves_what_was_left_out(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.write("a.md", "one")
        first = place.commit()["id"]
        place.write("a.md", "two")
        monkeypatch.setattr(history, "MAX_NEW_BYTES", 2)

        assert place.restore(first)["left"] == []
        place.write("b.md", "newer than any checkpoint")
        assert place.restore(first)["left"] == []
        assert (place.root / "a.md").read_text() == "two"

    def test_what_is_known_of_another_checkpoint_is_not_believed(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settle(place, monkeypatch)
        place.write("a.md", "one")
        place.commit()
        known = (place.store / "known-files").read_bytes()
        shutil.rmtree(place.store)
        place.write("b.md", "two")
        place.commit()
        (place.store / "known-files").write_bytes(known)
        place.write("c.md", "three")

        assert place.kept(place.commit()["id"]).keys() == {"a.md", "b.md", "c.md"}


class TestFinding:
    def test_the_beginning_of_an_id_is_enough(self, place: Place) -> None:
        place.write("a.md")
        id = place.commit()["id"]

        assert place.diff(id[:4]) == []
        assert place.diff(id[:7], id) == []

    @pytest.mark.parametrize("id", ["abc", "HEAD", "../refs"])
    def test_what_is_no_id_is_refused(self, place: Place, id: str) -> None:
        with pytest.raises(OwnerMustAct, match="is not an id"):
            place.diff(id)

    def test_an_id_that_is_not_there_is_told(self, place: Place) -> None:
        with pytest.raises(OwnerMustAct, match="there is no checkpoint 0000"):
            place.diff("0000")

    def test_an_id_that_is_a_files_is_no_checkpoint(self, place: Place) -> None:
        place.write("a.md", "one")
        place.commit()

        with pytest.raises(OwnerMustAct, match="there is no checkpoint"):
            place.diff(Blob.from_string(b"one").id.decode())

    def test_a_beginning_that_two_share_is_told(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        ids = []
        for number in range(2):
            place.write("a.md", str(number))
            ids.append(place.commit()["id"])
        with stores.open_store(place.store) as store:
            commits = [store.find(id).id for id in ids]
            monkeypatch.setattr(store.objects, "iter_prefix", lambda _: iter(commits))
            with pytest.raises(OwnerMustAct, match="matches 2 checkpoints"):
                store.find(ids[0])

    def test_a_list_is_as_long_as_was_asked(self, place: Place) -> None:
        ids = []
        for number in range(3):
            place.write("a.md", str(number))
            ids.append(place.commit()["id"])

        assert [row["id"] for row in place.rows()] == ids[::-1]
        assert [row["id"] for row in place.rows(2)] == ids[:0:-1]

    def test_differences_go_from_the_first_to_the_second(self, place: Place) -> None:
        place.write("a.md", "one")
        place.write("b.md")
        first = place.commit()["id"]
        place.write("a.md", "two")
        (place.root / "b.md").unlink()
        place.write("c/d.md")
        second = place.commit()["id"]
        place.write("a.md", "one")

        assert place.diff(first, second) == [("changed", "a.md"), ("removed", "b.md"), ("added", "c/d.md")]
        assert place.diff(second, first) == [("changed", "a.md"), ("added", "b.md"), ("removed", "c/d.md")]
        assert place.diff(second) == [("changed", "a.md")]


class TestRestore:
    def test_everything_is_as_it_was(self, place: Place) -> None:
        place.write("a.md", "one", 0o644)
        place.write("run.sh", "run", 0o755)
        place.write("notes/b.md", "two")
        (place.root / "link").symlink_to("a.md")
        first = place.commit()["id"]
        before = place.now()
        place.write("a.md", "changed", 0o644)
        (place.root / "run.sh").chmod(0o644)
        shutil.rmtree(place.root / "notes")
        (place.root / "link").unlink()
        (place.root / "link").symlink_to("elsewhere")
        place.write("new/deep/file.md")
        changed = place.now()
        done = place.restore(first)

        assert place.now() == before
        assert not (place.root / "new").exists()
        assert (done["written"], done["removed"], done["left"]) == (4, 1, [])
        assert place.rows()[0]["reason"] == "before restore"

        place.restore(done["before"])
        assert place.now() == changed

    def test_what_is_already_so_is_not_touched(self, place: Place) -> None:
        file = place.write("a.md")
        id = place.commit()["id"]
        as_it_was = file.stat()
        done = place.restore(id)

        assert file.stat() == as_it_was
        assert done["before"] is None

    def test_only_the_named_part_is_restored(self, place: Place) -> None:
        place.write("a.md", "one")
        place.write("notes/b.md", "one")
        id = place.commit()["id"]
        for path in ("a.md", "notes/b.md", "notes/c.md", "notes-too.md"):
            place.write(path, "two")
        place.restore(id, "notes/")

        assert {path: content for path, (_, content) in place.now().items()} == {
            "a.md": b"two",
            "notes/b.md": b"one",
            "notes-too.md": b"two",
        }

    def test_a_single_file_can_be_restored(self, place: Place) -> None:
        place.write("notes/b.md", "one")
        id = place.commit()["id"]
        shutil.rmtree(place.root / "notes")
        place.restore(id, "notes/b.md")

        assert (place.root / "notes/b.md").read_text() == "one"

    @pytest.mark.parametrize("path", ["../x", "/etc", "sessions/a.md", "Memory", "nothing.md"])
    def test_a_path_that_cannot_be_restored_changes_nothing(self, place: Place, path: str) -> None:
        place.write("a.md", "one")
        id = place.commit()["id"]
        place.write("a.md", "two")
        with pytest.raises(SupaclawError):
            place.restore(id, path)

        assert (place.root / "a.md").read_text() == "two"

    def test_the_gateways_own_folders_stay(self, place: Place) -> None:
        place.write("a.md", "one")
        id = place.commit()["id"]
        place.write("sessions/1.md")
        place.write("memory/INDEX.md")
        place.restore(id)

        assert place.now().keys() == {"a.md", "sessions/1.md", "memory/INDEX.md"}

    @pytest.mark.parametrize("first", ["file", "folder", "link"])
    @pytest.mark.parametrize("second", ["file", "folder", "link"])
    def test_a_path_can_become_what_it_was(self, place: Place, tmp_path: Path, first: str, second: str) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "x.md").write_text("outside")
        make: dict[str, Callable[[], object]] = {
            "file": lambda: place.write("thing", "file"),
            "folder": lambda: place.write("thing/x.md", "inside"),
            "link": lambda: (place.root / "thing").symlink_to(tmp_path / "outside"),
        }
        make[first]()
        place.write("other.md")
        id, before = place.commit()["id"], place.now()
        shutil.rmtree(place.root)
        place.root.mkdir()
        make[second]()
        done = place.restore(id)

        assert done["left"] == []
        assert place.now() == before
        assert (tmp_path / "outside" / "x.md").read_text() == "outside"

    def test_what_no_checkpoint_holds_is_left_and_named(self, place: Place) -> None:
        place.write("a.md", "one")
        place.write("b/c.md", "one")
        place.write("d.md", "one")
        id = place.commit()["id"]
        shutil.rmtree(place.root)
        place.root.mkdir()
        os.mkfifo(place.root / "a.md")
        os.mkfifo(place.root / "b")
        done = place.restore(id)

        assert set(done["left"]) == {"a.md", "b/c.md"}
        assert stat.S_ISFIFO((place.root / "a.md").lstat().st_mode)
        assert (place.root / "d.md").read_text() == "one"

    def test_a_change_made_meanwhile_is_never_lost(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.write("a.md", "one")
        id = place.commit()["id"]
        place.write("a.md", "two")
        place.write("b.md", "new")
        really = history.make_equal

        def later(*arguments: object) -> object:
            place.write("a.md", "written meanwhile")
            place.write("b.md", "written meanwhile")
            return really(*arguments)

        monkeypatch.setattr(history, "make_equal", later)
        done = place.restore(id)

        assert set(done["left"]) == {"a.md", "b.md"}
        assert {content for _, content in place.now().values()} == {b"written meanwhile"}

    @pytest.mark.parametrize("name", [b"..", b"a/../../x", b"/etc/x", b"sessions", b"Memory"])
    def test_a_checkpoint_that_is_not_ours_is_refused_whole(self, place: Place, tmp_path: Path, name: bytes) -> None:
        place.write("a.md", "one")
        place.commit()
        id = forged(place, name)

        with pytest.raises(OwnerMustAct, match="not ours"):
            place.restore(id)
        assert place.now().keys() == {"a.md"}
        assert {path.name for path in tmp_path.iterdir()} == {"workspace", "data"}

    def test_a_link_below_which_a_checkpoint_has_files_is_not_followed(self, place: Place, tmp_path: Path) -> None:
        place.write("notes/a.md", "one")
        id = place.commit()["id"]
        shutil.rmtree(place.root / "notes")
        (tmp_path / "outside").mkdir()
        (place.root / "notes").symlink_to(tmp_path / "outside")
        place.restore(id, "notes/a.md")

        assert list((tmp_path / "outside").iterdir()) == []


def forged(place: Place, name: bytes) -> str:
    """A checkpoint as an attacker would write it."""
    blob, tree, commit = Blob.from_string(b"evil"), Tree(), Commit()
    tree.add(name, 0o100644, blob.id)
    commit.tree = tree.id
    commit.author = commit.committer = b"x <x>"
    commit.author_time = commit.commit_time = commit.author_timezone = commit.commit_timezone = 0
    commit.message = b"x"
    with stores.open_store(place.store) as store:
        store.objects.add_objects([(blob, None), (tree, None), (commit, None)])
    return commit.id.decode()


def test_a_second_program_waits_for_the_first(place: Place) -> None:
    place.write("a.md")
    with stores.open_store(place.store):
        other = threading.Thread(target=place.commit)
        other.start()
        other.join(0.3)
        assert other.is_alive()
        assert not (place.store / "refs/heads/main").exists()
    other.join()
    assert len(place.rows()) == 1


class TestRepack:
    def many(self, place: Place, number: int) -> dict[str, dict[str, bytes]]:
        made = {}
        for version in range(number):
            place.write("notes/a.md", f"{version} " * 100)
            place.write(f"other-{version % 5}.md", f"{version}")
            id = place.commit()["id"]
            made[id] = place.kept(id)
        return made

    def packs(self, place: Place) -> set[str]:
        return {path.name for path in (place.store / "objects/pack").iterdir()}

    def test_many_packs_become_one_and_every_checkpoint_stays_what_it_was(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = self.many(place, 11)
        assert len(self.packs(place)) == 22
        monkeypatch.setattr(stores, "REPACK_COUNT", 12)
        place.write("last.md")
        place.commit()

        assert len(self.packs(place)) == 2
        assert {id: place.kept(id) for id in made} == made
        assert [row["id"] for row in place.rows()][1:] == list(made)[::-1]
        if git := shutil.which("git"):
            subprocess.run([git, "--git-dir", place.store, "fsck", "--full"], check=True, capture_output=True)

    def test_a_large_pack_is_left_alone(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.write("large.bin", random.Random(1).randbytes(20_000).hex())
        place.commit()
        large = self.packs(place)
        made = self.many(place, 5)
        monkeypatch.setattr(stores, "REPACK_COUNT", 2)
        monkeypatch.setattr(stores, "REPACK_BYTES", 10_000)
        place.write("last.md")
        place.commit()

        assert len(self.packs(place)) == 4
        assert large < self.packs(place)
        assert {id: place.kept(id) for id in made} == made

    def test_a_large_workspace_is_written_in_several_packs(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stores, "BATCH_BYTES", 1000)
        contents = {f"{number}.md": str(number).encode() * 400 for number in range(10)}
        for path, content in contents.items():
            place.write(path, content.decode())

        assert place.kept(place.commit()["id"]) == contents
        assert len(self.packs(place)) > 4


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Whether a process that does `work` dies by SIGKILL at the n-th call that changes what is on disk."""
    pid = os.fork()
    if pid == 0:
        steps = iter(range(1, step))
        for name in ("fsync", "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "symlink"):
            setattr(os, name, deadly(getattr(os, name), steps))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def deadly(really: Callable[..., object], steps: Iterator[int]) -> Callable[..., object]:
    def counted(*arguments: object, **more: object) -> object:
        if next(steps, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return really(*arguments, **more)

    return counted


def test_a_kill_at_any_step_of_a_commit_leaves_what_was_and_can_be_followed(place: Place) -> None:
    place.write("a.md", "first")
    first = place.commit()["id"]
    for step in range(1, 100):
        place.write("a.md", f"{step}")
        if not killed_at(step, place.commit):
            break
        assert place.kept(first) == {"a.md": b"first"}
        assert [place.kept(row["id"])["a.md"] for row in place.rows()]
        place.commit()
        assert place.kept(place.rows(1)[0]["id"]) == {"a.md": str(step).encode()}
    assert step > 8


def test_a_kill_at_any_step_of_the_first_commit_can_be_followed(place: Place) -> None:
    place.write("a.md", "first")
    for step in range(1, 100):
        if not killed_at(step, place.commit):
            break
        place.commit()
        assert [place.kept(row["id"]) for row in place.rows()] == [{"a.md": b"first"}]
        shutil.rmtree(place.store)
    assert step > 8


@pytest.mark.thorough
def test_a_kill_at_any_step_of_a_repack_loses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, dict[str, bytes]] = {}
    for step in range(1, 100):
        monkeypatch.setattr(stores, "REPACK_COUNT", 1000)
        for version in range(4):
            place.write("a.md", f"{step} {version}")
            id = place.commit()["id"]
            kept[id] = place.kept(id)
        monkeypatch.setattr(stores, "REPACK_COUNT", 3)
        if not killed_at(step, place.commit):
            break
        recent = list(kept)[-8:]
        assert [place.kept(id) for id in recent] == [kept[id] for id in recent]
    assert {id: place.kept(id) for id in kept} == kept
    assert step > 8


def test_a_kill_at_any_step_of_a_restore_can_be_followed_and_taken_back(place: Place) -> None:
    place.write("a.md", "one")
    place.write("b/c.md", "one")
    (place.root / "link").symlink_to("a.md")
    wanted, id = place.now(), place.commit()["id"]
    for step in range(1, 100):
        shutil.rmtree(place.root / "b", ignore_errors=True)
        (place.root / "link").unlink()
        place.write("a.md", f"two {step}")
        place.write("d/e.md", f"two {step}")
        if not killed_at(step, lambda: place.restore(id)):
            break
        place.restore(id)
        assert {path: file for path, file in place.now().items() if ".writing-" not in path} == wanted
        contents = [place.kept(row["id"]).get("a.md") for row in place.rows(3)]
        assert f"two {step}".encode() in contents
    assert step > 12
    assert place.now().keys() >= wanted.keys()
