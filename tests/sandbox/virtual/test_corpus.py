"""Everyday lines of shell: what the virtual shell answers is what bash answers, or it says that it can't."""

import os
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from gateway.sandbox.virtual.shell import HOME, _run_coroutine, _shell

LINES = Path(__file__).with_name("everyday.txt").read_text("utf-8").rstrip("\n").split("\n%%\n")
FILES = {
    "people.csv": "name,city,age\nAda,London,36\nBo,Paris,28\nCy,Berlin,9\nDi,Rome,100\n",
    "words.txt": "pear\napple\nbanana\napple\n",
    "w4.txt": "apple\npear\nzoo\n",
    "numbers.txt": "10\n9\n100\n-3\n",
    "log.txt": "b INFO start up\na ERROR disk full\nd WARN disk low\nc ERROR net down\n",
    "sub/one.txt": "one\n",
    "sub/two.txt": "two\n",
    "j.json": '[{"name":"Ada","age":36}]',
}
OTHERS = (
    "awk '{print $1}' log.txt",
    "awk '{c[$2]++} END{for(k in c) print k, c[k]}' log.txt | sort",
    "jq length j.json",
    "sed -E 's/[a-z]+/x/' log.txt",
    "sed 's/a/b/2' words.txt",
    "grep -on a words.txt",
    "find . -name '*.txt' -exec wc -l {} \\; | sort",
    "tar cf a.tar sub",
    "diff words.txt w4.txt | head -1",
    "date +%F",
    "gunzip -c x.gz",
    "sort -k1.2 words.txt",
    "paste -sd+ numbers.txt",
    "trap 'echo bye' EXIT",
    "python3 -c 'print(1)' || true",
    "sqlite3 x.db 'select 1'",
)


def answered(line: str) -> tuple[str, int, list[str]]:
    refused: list[str] = []
    files = {f"{HOME}/{name}": b64encode(text.encode()).decode() for name, text in FILES.items()}
    result = _run_coroutine(_shell(files, {}, refused).exec(line, cwd=HOME))
    return result.stdout, result.exit_code, refused


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to compare with")
def test_each_answers_as_in_bash(tmp_path: Path) -> None:
    wrong = []
    for number, line in enumerate(LINES):
        home = tmp_path / str(number)
        for name, text in FILES.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": HOME}
        real = subprocess.run(["bash", "-c", line], cwd=home, capture_output=True, env=environment, check=False)
        output, code, refused = answered(line)
        # Columns are as wide as the system likes them.
        if refused or (output.split(), code) != (real.stdout.decode().split(), real.returncode):
            wrong.append((line, real.stdout, output, refused))
    assert len(LINES) > 200
    assert wrong == []


@pytest.mark.parametrize("line", OTHERS)
def test_what_it_cannot_do_right_it_says(line: str) -> None:
    assert answered(line)[2]
