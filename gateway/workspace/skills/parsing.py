"""SKILL.md and other files that begin with front matter: read as their writers mean them, or refused with the line."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.domain.errors import SupaclawError
from gateway.domain.text.texts import one_line


class BadSkill(SupaclawError):
    """It cannot be a skill; the text says why, in one line."""


MAX_HEAD, MAX_YAML_DEPTH = 16 * 1024, 50
MAX_NAME, MAX_DESCRIPTION = 64, 1024
NO_VERSION = "1.0.0"

_HEAD = re.compile(r"\A\ufeff?\s*---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_KEYS = re.compile(r"^([A-Za-z_][\w.-]*):(?=\s)", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_OWN = frozenset({"name", "description", "version"})


@dataclass(frozen=True, slots=True)
class Skill:
    """A parsed SKILL.md; `about` has the other fields of its front matter, as text."""

    name: str
    description: str
    version: str
    about: tuple[tuple[str, str], ...]
    body: str

    def summary(self) -> Sequence[str]:
        """Lines that describe its files to the person who confirms them."""
        return ()


def parse(text: str) -> Skill:
    """Check it by the rules of agentskills.io, but accept further fields, long texts and names as people write them.

    Raises `BadSkill`.
    """
    fields, body = front_matter(text, "SKILL.md")
    name, description = plain_name(fields.get("name") or fields.get("slug")), fields.get("description")
    if not isinstance(description, str) or not description.strip():
        raise BadSkill("Its description must be a text; add a line such as: description: Writes weekly notes")
    nested = fields.get("metadata")
    version = fields.get("version") or (nested.get("version") if isinstance(nested, dict) else None) or NO_VERSION
    about = tuple((_line(key), _line(value)) for key, value in _flat(fields) if key not in _OWN)
    return Skill(name, one_line(description, MAX_HEAD), _line(version), about, body)


def plain_name(written: object) -> str:
    """The name in the form that folders have: `Weekly notes (new)` is `weekly-notes-new`. Raises `BadSkill`."""
    name = re.sub(r"[\s_.,:;&+()'!-]+", "-", written.lower()).strip("-") if isinstance(written, str) else ""
    if not is_name(name):
        raise BadSkill(
            f"Its name must be a-z, 0-9 and single hyphens, at most {MAX_NAME} characters; "
            f"write a line such as: name: weekly-notes"
        )
    return name


def is_name(text: str) -> bool:
    """Whether a skill may be called so."""
    return len(text) <= MAX_NAME and bool(_NAME.fullmatch(text))


def front_matter(text: str, file: str) -> tuple[dict[object, object], str]:
    """The fields of its head, all of them as text, and what is below it; raises `BadSkill`."""
    found = _HEAD.match(text)
    if found is None:
        raise BadSkill(
            f"A {file} must begin with front matter between two --- lines: in line 1 ---, then fields such as "
            "name: weekly-notes, then --- again."
        )
    if len(found[1]) > MAX_HEAD:
        raise BadSkill(f"The front matter of its {file} is longer than {MAX_HEAD >> 10} kB; move text below it.")
    keys = _KEYS.findall(found[1])
    if twice := next((key for key in keys if keys.count(key) > 1), ""):  # YAML takes the last one, in silence
        raise BadSkill(f"The front matter of its {file} has {twice} more than once; keep one line of it.")
    lines_before = text.count("\n", 0, found.start(1))
    fields = plain_yaml("\n" * lines_before + as_meant(found[1]), f"The front matter of its {file}")
    if not isinstance(fields, dict):
        raise BadSkill(f"The front matter of its {file} isn't a list of fields; write lines such as name: weekly-notes")
    return fields, text[found.end() :].strip()


_FIELD = re.compile(r"(?P<key>(?P<indent> *(?:- +)*)(?P<name>[A-Za-z_][\w.-]*):)[ \t]+(?P<value>\S(?:.*\S)?)\s*")
_PLAIN = re.compile(r"\w[^:#\t]*")
_BLOCK = re.compile(r"[|>][+-]?[1-9]?[+-]?(?:[ \t]+#.*)?")
_COMMENT = re.compile(r"\s#(?:\s.*)?\Z", re.DOTALL)


def as_meant(head: str) -> str:
    """The lines of a head, with quotes around values that YAML refuses or cuts: `Use when: …`, `@ada`, `a #b`.

    Values that are YAML stay so: quoted texts, blocks, lists, comments after a field. Lines keep their numbers.
    """
    lines = [re.sub(r"^[ \t]+|(?<=:)[ \t]+", lambda gap: gap[0].replace("\t", "  "), line) for line in head.split("\n")]
    meant, at = list[str](), 0
    while at < len(lines):
        field, end = _FIELD.fullmatch(lines[at]), at + 1
        while field and end < len(lines) and _continues(lines[end], len(field["indent"])):
            end += 1
        whole = lines[at:end]
        if field and not _BLOCK.fullmatch(field["value"]) and not _is_yaml(field, whole[1:]):
            text = " ".join([field["value"], *" ".join(whole[1:]).split()]).replace("'", "''")
            whole = [f"{field['key']} '{text}'", *[""] * (len(whole) - 1)]
        meant, at = [*meant, *whole], end
    return "\n".join(meant)


def _continues(line: str, indent: int) -> bool:
    return not line.strip() or len(line) - len(line.lstrip()) > indent or line[:1] in "}]"


def _is_yaml(field: re.Match[str], more: Sequence[str]) -> bool:
    """Whether YAML reads all words of the value; a list or fields, where a description is wanted, are words."""
    value, words = field["value"], " ".join([field["value"], *more]).split()
    if _PLAIN.fullmatch(value) and len(words) == len(value.split()):
        return True
    try:
        read = plain_yaml("\n".join([f"field: {value}", *(f"  {line}" for line in more)]), "It")
    except BadSkill:
        return False
    found = read.get("field") if isinstance(read, dict) else None
    described = field["name"] == "description"
    if not isinstance(found, str):
        return not described
    plain = " ".join(words) if described else _COMMENT.sub("", " ".join(words))
    return value[0] in "\"'" or " ".join(found.split()) == plain


def plain_yaml(text: str, what: str) -> object:
    """Lists, fields and texts, without what makes a small text a huge value; raises `BadSkill`."""
    import yaml  # 15 ms

    depth = 0
    try:
        for event in yaml.parse(text, yaml.BaseLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_YAML_DEPTH:  # the library takes minutes for what is nested a thousand times
                raise BadSkill(f"{what} is not valid YAML: it is nested more than {MAX_YAML_DEPTH} times.")
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
                raise BadSkill(f"{what} uses YAML aliases or tags; write plain fields.")
        return yaml.load(text, yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = (error.context_mark if isinstance(error, yaml.scanner.ScannerError) else None) or error.problem_mark
        line = f" in line {mark.line + 1}" if mark else ""
        cure = "write key: value, and put quotes around values with signs"
        raise BadSkill(f"{what} is not valid YAML{line}: {one_line(error.problem or '', 80)}; {cure}.") from error
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise BadSkill(f"{what} is not valid YAML; delete control characters and other rare signs in it.") from error


def _flat(fields: dict[object, object]) -> Iterator[tuple[str, object]]:
    for key, value in sorted(fields.items(), key=lambda item: str(item[0])):
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", each) for inner, each in value.items())
        else:
            yield str(key), value


def _line(value: object) -> str:
    return one_line(unicodedata.normalize("NFC", str(value)), 200)
