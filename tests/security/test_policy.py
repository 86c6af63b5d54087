"""The decision on a call, over all of its states; every change of one condition in it is noticed."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.agent import policy
from gateway.agent.limits import UNSPENT, Limits
from gateway.agent.loop import _Turn
from gateway.agent.policy import Case, Decision, decide, words_of
from gateway.domain.conversation.tools import ArgumentRole as Role
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.work.plans import Source
from gateway.secrets.facts import Binding
from gateway.secrets.injection import Outgoing, SecretRefused, Usable, inject
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import toolbox_of

Rule = Callable[[Case], Decision]
OUTSIDE = {ToolClass.SEND, ToolClass.ACT, ToolClass.RUN, ToolClass.IRREVERSIBLE}
KEEPS = {ToolClass.READ, ToolClass.WRITE, ToolClass.NET}
YES_NO = (False, True)
SETTLED: Mapping[Role | None, str] = {
    Role.ID: "WORDS CONFIRMED ROW MADE",
    Role.RECIPIENT: "WORDS CONFIRMED ROW",
    Role.CONTENT: "WORDS CONFIRMED ROW MADE FIELD OWN_ENTRY",
    Role.TIME: "WORDS CONFIRMED OWN_ENTRY",
    Role.LINK: "WORDS CONFIRMED FIELD",
    Role.CHOICE: "WORDS CONFIRMED TYPED",
    Role.AMOUNT: "",
    None: "",
}
"""The sources that may fill an argument of a planned call; nothing else does."""
SLOTS = [(role, source) for role in (*Role, None) for source in Source]
TO = [(Role.RECIPIENT, Source.WORDS), (Role.RECIPIENT, Source.CONFIRMED)]
STEPS = [(), *([slot] for slot in SLOTS), *([to, slot] for to in TO for slot in SLOTS)]
FEW_STEPS = [(), [(Role.RECIPIENT, Source.WORDS)]]
CASES = [
    Case(
        kind=kind,
        label=label,
        own=own,
        attended=attended,
        fork=fork,
        written=written,
        worded=worded,
        granted=granted,
        slots=slots,
    )
    for kind, label, own, attended, fork, written, worded, granted, slots in product(
        (None, *ToolClass), Label, Label, YES_NO, YES_NO, YES_NO, YES_NO, YES_NO, FEW_STEPS
    )
] + [
    Case(kind=kind, label=label, own=Label.OWNER, attended=attended, slots=slots)
    for kind, label, attended, slots in product(ToolClass, Label, YES_NO, STEPS)
]


def breaches(rule: Rule) -> Iterator[str]:
    """Yield each promise that the rule breaks, with the case."""
    for case in CASES:
        verdict = rule(case)
        tainted = case.label > case.own
        approved = case.granted and not case.fork
        worded = _is_worded(case) or _is_planned(case)
        copied = case.written and tainted and case.kind is not ToolClass.READ
        if verdict is Decision.ALLOW and copied and not approved:
            yield f"a call that may be copied from what was read: {case}"
        if verdict is Decision.ALLOW and tainted and case.kind not in KEEPS and not (worded or approved):
            yield f"an act after others' words that nobody wanted: {case}"
        if verdict is Decision.ALLOW and case.fork and case.kind not in KEEPS:
            yield f"a repeated run acts: {case}"
        if verdict is Decision.ALLOW and case.kind is ToolClass.IRREVERSIBLE and not approved:
            yield f"what can't be undone isn't asked about: {case}"
        if verdict is not Decision.REFUSE and case.kind is ToolClass.RUN and case.own is not Label.OWNER:
            yield f"a member runs commands of the owner's: {case}"
        if verdict is not Decision.REFUSE and case.kind is None and (tainted or case.fork):
            yield f"an unknown act: {case}"
        yield from _narrower(rule, case, verdict)
        yield from _useful(case, verdict, clean=not tainted and not case.fork)


def _is_worded(case: Case) -> bool:
    return case.kind is ToolClass.SEND and case.worded and case.attended and not (case.fork or case.written)


def _is_planned(case: Case) -> bool:
    settled = all(source.name in SETTLED[role].split() for role, source in case.slots)
    confirmed = all(role in (Role.CONTENT, Role.TIME) or source is Source.CONFIRMED for role, source in case.slots)
    acts = case.kind in (ToolClass.SEND, ToolClass.ACT)
    return acts and bool(case.slots) and settled and (case.attended or confirmed) and not (case.fork or case.written)


def _narrower(rule: Rule, case: Case, verdict: Decision) -> Iterator[str]:
    """A grant only answers a question; less trust never allows more."""
    granted = rule(replace(case, granted=True))
    if granted is not verdict and (verdict, granted) != (Decision.ASK, Decision.ALLOW):
        yield f"a grant widens: {case}"
    for label in Label:
        if label > case.label and rule(replace(case, label=label)).value < verdict.value:
            yield f"less trust allows more: {case}"


def _useful(case: Case, verdict: Decision, *, clean: bool) -> Iterator[str]:
    """A person's own run isn't asked about what it may do, nor refused what they may approve."""
    owners = case.kind is ToolClass.RUN and case.own is not Label.OWNER
    if case.kind in KEEPS and verdict is not Decision.ALLOW and not (case.written and case.label > case.own):
        yield f"reading asks: {case}"
    if clean and case.kind is not ToolClass.IRREVERSIBLE and not owners and verdict is not Decision.ALLOW:
        yield f"a person's own wish asks: {case}"
    if case.kind is not None and not owners and verdict is Decision.REFUSE:
        yield f"nobody is asked: {case}"
    if case.granted and not case.fork and case.kind is not None and not owners and verdict is not Decision.ALLOW:
        yield f"a grant has no effect: {case}"
    if (_is_worded(case) or _is_planned(case)) and verdict is Decision.ASK:
        yield f"what its person worded or planned asks: {case}"


def test_the_rule_keeps_its_promises_in_every_state() -> None:
    assert len(CASES) == 9 * 3 * 3 * 2**5 * 2 + 8 * 3 * 2 * (1 + 3 * 8 * 8)
    assert not list(breaches(decide))


class Mutants(ast.NodeTransformer):
    """Changes the `wanted`-th condition of a function; counts them all."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.seen = wanted, 0

    def changed(self, node: Any, other: ast.AST) -> Any:
        self.seen += 1
        return other if self.seen - 1 == self.wanted else node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1 :]
            node = self.changed(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
            if not isinstance(node, ast.BoolOp):
                return node
        return self.changed(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self.changed(node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if (found := self.changed(node, ast.UnaryOp(ast.Not(), node))) is not node or not isinstance(
            node.ops[0], ast.LtE
        ):
            return found
        return self.changed(node, ast.Compare(node.left, [ast.Lt()], node.comparators))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """A condition of the case, taken as true or as false; or another verdict."""
        if node.attr in ("clean", "written", "worded", "attended", "fork", "granted"):
            node = self.changed(node, ast.Constant(value=True))
            return self.changed(node, ast.Constant(value=False)) if isinstance(node, ast.Attribute) else node
        if isinstance(node.value, ast.Name) and node.value.id == "Decision":
            for verdict in Decision:
                if verdict.name != node.attr:
                    other = ast.Attribute(node.value, verdict.name, ast.Load())
                    if (found := self.changed(node, other)) is not node:
                        return found
        return node

    def visit_MatchOr(self, node: ast.MatchOr) -> Any:
        """A class missing from a case falls to the next that takes it, at last to an error."""
        for place in range(len(node.patterns)):
            rest = node.patterns[:place] + node.patterns[place + 1 :]
            found = self.changed(node, rest[0] if len(rest) == 1 else ast.MatchOr(rest))
            if found is not node:
                return found
        return node


def mutants() -> Iterator[tuple[str, Rule]]:
    """Yield `decide` with one condition changed, or `Case.clean` or `Case.planned`, which it reads."""
    for function in (decide, Case.clean.fget, Case.planned.fget):
        source = textwrap.dedent(inspect.getsource(function)).replace("@property\n", "")
        wanted, count = 0, 1
        while wanted < count:
            changed = Mutants(wanted)
            tree = ast.fix_missing_locations(changed.visit(ast.parse(source)))
            wanted, count = wanted + 1, changed.seen
            names = dict(vars(policy))
            exec(compile(tree, "mutant", "exec"), names)
            name = function.__name__
            yield ast.unparse(tree), names["decide"] if function is decide else _with(name, names[name])


def _with(name: str, condition: Callable[[Case], bool]) -> Rule:
    def rule(case: Case) -> Decision:
        fields = {field.name: getattr(case, field.name) for field in dataclasses.fields(case)}
        read = {"clean": case.clean, "planned": case.planned, name: condition(case)}
        return decide(cast(Case, SimpleNamespace(**fields, **read)))

    return rule


def test_every_changed_condition_breaks_a_promise() -> None:
    tried = list(mutants())
    assert len(tried) > 25
    for source, rule in tried:
        assert _noticed(rule), f"nobody would notice:\n{source}"


def _noticed(rule: Rule) -> bool:
    try:
        return next(breaches(rule), None) is not None
    except AssertionError:  # no case takes this class
        return True


@pytest.mark.parametrize(
    "arguments",
    [
        {"the secret": "12 May"},
        {"the secret": None},
        {"query": None},
        {"query": ""},
        {"query": []},
        {"query": {}},
        {"query": {"the secret": None}},
        {"query": {"the secret": {}}},
        {"query": {"the secret": "12 May"}},
        {"query": [{"the secret": 1}]},
        {"query": {"12 May": {"12 May": "12 May"}}},
        {"query": [["12 May"]]},
        {"query": ["12 May", None]},
        {"query": True},
    ],
)
def test_names_and_emptiness_say_something(arguments: JsonObject) -> None:
    words = list(words_of(arguments, {"query"}))
    assert words
    assert any(not value or set(value) - {"12 May"} for value in words)


def test_names_that_the_tool_declares_say_nothing_and_a_list_is_one_value() -> None:
    assert list(words_of({"query": "12 May", "more": ["a", 2]}, {"query", "more"})) == [("12 May",), ["a", "2"]]
    assert not list(words_of({}, {"query"}))


def test_a_secret_goes_to_no_other_host_tool_place_or_field() -> None:
    bound = Binding.of(["api.example"], ["weather"], "header:X-Key")
    passed = set()
    for host, tool, name, as_field, known in product(
        ("api.example", "evil.example", "api.example:444"), ("weather", "mail"), ("X-Key", "X-Other"), YES_NO, YES_NO
    ):
        sent = {name: "${secret:KEY}"}
        request = Outgoing("POST", f"https://{host}/", {} if as_field else sent, sent if as_field else {})
        with_secret = Usable("hush", bound) if known else None
        try:
            inject(request, tool, lambda _name, found=with_secret: found)
            passed.add((host, tool, name, as_field, known))
        except SecretRefused:
            pass
    assert passed == {("api.example", "weather", "X-Key", False, True)}


@pytest.mark.parametrize(("before", "read"), [*product(Label, Label)])
def test_the_label_of_a_run_never_falls(before: Label, read: Label) -> None:
    turn = _Turn([], toolbox_of((), unspilled), replace(CALLER, label=before), Limits(), UNSPENT, 0, frozenset())
    turn.taint(read)
    assert turn.caller.label == max(before, read)


async def unspilled(path: str, _text: str, _label: Label) -> str:
    return path
