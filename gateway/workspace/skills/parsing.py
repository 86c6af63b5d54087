"""SKILL.md: a head in YAML that says what the skill is for, and the instructions below it."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.domain.text.texts import one_line
from gateway.workspace.skills.folder import BadSkill, Files, manifest

MAX_HEAD, MAX_DEPTH = 16 * 1024, 50
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500
NO_VERSION = "1.0.0"

_HEAD = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_OWN = frozenset({"name", "description", "version"})


@dataclass(frozen=True, slots=True)
class Skill:
    """What a SKILL.md says; `about` are the other fields of its head, as text."""

    name: str
    description: str
    version: str
    about: tuple[tuple[str, str], ...]
    body: str

    def summary(self) -> Sequence[str]:
        """What its files come to, for the person who confirms them."""
        return ()


def skill_of(files: Files) -> Skill:
    """Parse the SKILL.md among its files; raises `BadSkill`."""
    try:
        return parse(files[manifest(files)].decode())
    except UnicodeDecodeError as error:
        raise BadSkill("Its SKILL.md is not UTF-8 text.") from error


def parse(text: str) -> Skill:
    """Check it by the rules of agentskills.io, but that further fields are let be; raises `BadSkill`."""
    fields, body = front_matter(text, "SKILL.md")
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not is_name(name):
        raise BadSkill(f"Its name must be a-z, 0-9 and single hyphens, at most {MAX_NAME} characters.")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= MAX_DESCRIPTION:
        raise BadSkill(f"Its description must be a text of at most {MAX_DESCRIPTION} characters.")
    compatibility = fields.get("compatibility", "")
    if not isinstance(compatibility, str) or len(compatibility) > MAX_COMPATIBILITY:
        raise BadSkill(f"Its compatibility must be a text of at most {MAX_COMPATIBILITY} characters.")
    nested = fields.get("metadata")
    version = fields.get("version") or (nested.get("version") if isinstance(nested, dict) else None) or NO_VERSION
    about = tuple((_line(key), _line(value)) for key, value in _flat(fields) if key not in _OWN)
    return Skill(name, one_line(description, MAX_DESCRIPTION), _line(version), about, body)


def is_name(text: str) -> bool:
    """Whether a skill may be called so."""
    return len(text) <= MAX_NAME and bool(_NAME.fullmatch(text))


def front_matter(text: str, file: str) -> tuple[dict[object, object], str]:
    """The fields of its head, all of them as text, and what is below it; raises `BadSkill`."""
    found = _HEAD.match(text)
    if found is None:
        raise BadSkill(f"A {file} must begin with front matter between two --- lines.")
    if len(found[1]) > MAX_HEAD:
        raise BadSkill(f"The front matter of its {file} is longer than {MAX_HEAD >> 10} kB.")
    fields = plain_yaml(found[1], f"The front matter of its {file}")
    if not isinstance(fields, dict):
        raise BadSkill(f"The front matter of its {file} isn't a list of fields.")
    return fields, text[found.end() :].strip()


def plain_yaml(text: str, what: str) -> object:
    """Lists, fields and texts, without what makes a small text a huge value; raises `BadSkill`."""
    import yaml  # 15 ms

    opens = (
        yaml.FlowSequenceStartToken,
        yaml.FlowMappingStartToken,
        yaml.BlockSequenceStartToken,
        yaml.BlockMappingStartToken,
    )
    closes = yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken
    depth = 0
    try:
        for token in yaml.scan(text, yaml.BaseLoader):
            depth += isinstance(token, opens) - isinstance(token, closes)
            if depth > MAX_DEPTH:  # the library takes minutes for what is nested a thousand times
                raise BadSkill(f"{what} is not valid YAML: it is nested more than {MAX_DEPTH} times.")
            if isinstance(token, yaml.AliasToken | yaml.TagToken):
                raise BadSkill(f"{what} uses YAML aliases or tags; write plain fields.")
        return yaml.load(text, yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise BadSkill(f"{what} is not valid YAML.") from error


def _flat(fields: dict[object, object]) -> Iterator[tuple[str, object]]:
    for key, value in sorted(fields.items(), key=lambda item: str(item[0])):
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", each) for inner, each in value.items())
        else:
            yield str(key), value


def _line(value: object) -> str:
    return one_line(unicodedata.normalize("NFC", str(value)), 200)
