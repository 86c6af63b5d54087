import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.data.instance import hold_instance, instance_id, running_address, running_pid
from gateway.domain.errors import OwnerMustAct

HOLD = """
import sys
from pathlib import Path
from gateway.config.data.instance import hold_instance
with hold_instance(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_nobody_holds_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert running_pid(tmp_path / "data") is None


def test_the_holder_is_known_by_its_process_id_until_it_lets_go(tmp_path: Path) -> None:
    with hold_instance(tmp_path / "data"):
        assert running_pid(tmp_path / "data") == os.getpid()

    assert running_pid(tmp_path / "data") is None
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_where_it_is_reached_is_known_until_it_lets_go(tmp_path: Path) -> None:
    with hold_instance(tmp_path) as hold:
        assert running_address(tmp_path) is None
        hold.record("http://127.0.0.1:8801")

        assert (running_pid(tmp_path), running_address(tmp_path)) == (os.getpid(), "http://127.0.0.1:8801")

    assert running_address(tmp_path) is None
    with hold_instance(tmp_path):
        assert running_address(tmp_path) is None


def test_there_is_one_at_a_time_and_death_lets_go(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert running_pid(tmp_path) == other.pid

        with pytest.raises(OwnerMustAct, match=rf"\(pid {other.pid}\); `supaclaw down`"), hold_instance(tmp_path):
            pass
        other.kill()

    assert running_pid(tmp_path) is None
    with hold_instance(tmp_path):
        assert running_pid(tmp_path) == os.getpid()


def test_a_lock_file_without_a_number_names_nobody(tmp_path: Path) -> None:
    with hold_instance(tmp_path):
        (tmp_path / "gateway.pid").write_text("")

        assert running_pid(tmp_path) is None


def test_an_instance_keeps_its_id(tmp_path: Path) -> None:
    identity = instance_id(tmp_path)

    assert instance_id(tmp_path) == identity


def test_an_id_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "instance").write_text("torn")

    identity = instance_id(tmp_path)

    assert instance_id(tmp_path) == identity
