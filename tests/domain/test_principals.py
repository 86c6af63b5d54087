import pytest

from gateway.domain.principals import Label, Role, label_of


@pytest.mark.parametrize(
    ("role", "private", "label"),
    [
        (Role.OWNER, True, Label.OWNER),
        (Role.MEMBER, True, Label.KNOWN),
        (Role.STRANGER, True, Label.UNTRUSTED),
        (Role.OWNER, False, Label.UNTRUSTED),
        (Role.MEMBER, False, Label.UNTRUSTED),
    ],
)
def test_trust_starts_with_who_writes_and_where(role: Role, private: bool, label: Label) -> None:
    assert label_of(role, private=private, as_owner=True) is label


def test_labels_are_ordered_by_suspicion() -> None:
    assert max(Label.OWNER, Label.UNTRUSTED, Label.KNOWN) is Label.UNTRUSTED
