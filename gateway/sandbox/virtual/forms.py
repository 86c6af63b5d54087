"""Which forms of which commands just-bash 0.2 answers as the real ones do; every other form is an error, never a guess.

Measured by `tests/sandbox/virtual/test_corpus.py`. awk, jq, tar, date, diff and others give wrong results without a
message, and so do some forms of the rest: `sed -E` ignores case. Two differences of the language are left: the last
command of a pipeline runs in the same shell, as with `shopt -s lastpipe`, and `declare -i` counts for nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """Options of one letter; those in `valued` take a value. `words`: what looks like an option is an argument."""

    plain: str = ""
    valued: str = ""
    words: bool = False


FORMS: Mapping[str, Form] = {
    "base64": Form("d"),
    "basename": Form(),
    "cat": Form("n"),
    "cp": Form("r"),
    "cut": Form("s", "dfc"),
    "dirname": Form(),
    "echo": Form(words=True),
    "expr": Form(words=True),
    "false": Form(),
    "find": Form(words=True),
    "grep": Form("EFchinoqrvwx", "eABCm"),
    "head": Form("", "nc"),
    "ls": Form("1"),
    "md5sum": Form(),
    "mkdir": Form("p"),
    "mv": Form(),
    "nl": Form(),
    "paste": Form("", "d"),
    "printf": Form(words=True),
    "pwd": Form(),
    "read": Form(words=True),
    "rev": Form(),
    "rm": Form("rf"),
    "sed": Form("ni", "e"),
    "seq": Form(words=True),
    "sha256sum": Form(),
    "sort": Form("bfnru", "kt"),
    "tac": Form(),
    "tail": Form("", "n"),
    "tee": Form("a"),
    "touch": Form(),
    "tr": Form("ds"),
    "true": Form(),
    "uniq": Form("cdu"),
    "wc": Form("clw"),
    "xargs": Form("0r", "nI"),
}
_NTH = re.compile(r"s(.)(?:(?!\1).)*\1(?:(?!\1).)*\1[a-zA-Z]*\d")
_FIND = frozenset({"-name", "-iname", "-type", "-maxdepth", "-mindepth", "-path", "-not", "!", "-o", "-empty"})


class WrongForm(Exception):
    """A form that isn't offered; the text says which."""


def arguments_of(command: str, given: Sequence[str]) -> list[str]:
    """Options taken apart, one letter each, before the other arguments; raises `WrongForm`."""
    form = FORMS[command]
    if form.words:
        _check_words(command, given)
        return list(given)
    options: list[str] = []
    rest = list(given)
    others: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--":
            others += rest
            break
        if word == "-" or not word.startswith("-"):
            others.append(word)
            if command == "xargs":  # what follows is a command of its own
                others += rest
                break
        elif word.startswith("-") and word[1:].isdigit() and command in ("head", "tail"):
            options += ["-n", word[1:]]
        else:
            options += _taken_apart(command, word, form, rest)
    if command == "grep" and {"-o", "-n"} <= {*options}:
        raise WrongForm("grep: -o with -n isn't supported in bash")
    if command == "sed" and any(_NTH.search(word) for word in (*options, *others)):
        raise WrongForm("sed: a number after s/// isn't supported in bash")
    return options + others


def _taken_apart(command: str, word: str, form: Form, rest: list[str]) -> list[str]:
    options = []
    for place, letter in enumerate(word[1:], 2):
        if letter in form.plain:
            options.append(f"-{letter}")
        elif letter in form.valued:
            value = word[place:] or (rest.pop(0) if rest else None)
            if value is None:
                raise WrongForm(f"{command}: -{letter} needs a value")
            return [*options, f"-{letter}", value]
        else:
            raise WrongForm(f"{command}: the option {word} isn't supported in bash")
    return options


def _check_words(command: str, given: Sequence[str]) -> None:
    for word in given if command == "find" else ():
        if word.startswith("-") and word not in _FIND:
            raise WrongForm(f"find: {word} isn't supported in bash")
