import hashlib
import re

from gateway.web import screens
from gateway.web.pages import STATIC

LOCK = STATIC / "vendor.lock"


def test_what_others_made_is_what_the_lock_says():
    entries = [line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    found = {path.name for path in (STATIC / "vendor").iterdir() if not path.name.endswith(".txt")}
    assert {file for _, _, _, file, _ in entries} == found
    for _name, _version, _source, file, digest in entries:
        assert hashlib.sha256((STATIC / "vendor" / file).read_bytes()).hexdigest() == digest, file


def test_every_vendored_file_has_its_licence():
    for path in (STATIC / "vendor").iterdir():
        if not path.name.endswith(".txt"):
            assert path.with_name(f"{path.stem}.LICENSE.txt").exists()


def test_every_icon_that_is_used_exists():
    icons = (STATIC / "vendor" / "icons.svg").read_text()
    for template in (STATIC.parent / "templates").iterdir():
        for name in re.findall(r'icon\("([^"]+)"\)', template.read_text()):
            assert f'id="{name}"' in icons, name
    used = [screen.icon for screen in screens.discover()]
    assert all(f'id="{name}"' in icons for name in used)
    assert len(set(used)) == len(used), "two screens look the same in the sidebar"


def test_templates_have_no_inline_script_or_style():
    for template in (STATIC.parent / "templates").iterdir():
        text = template.read_text()
        assert not re.search(r"<style|style=|\son\w+=|javascript:", text), template.name
        assert not re.search(r"<script(?![^>]*src=)", text), template.name
