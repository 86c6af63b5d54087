"""Questions: whether a text asks, and whether it says more than what is asked."""

import re
from collections.abc import Set

from gateway.memory.lexemes import fold, lexemes

_ASKS_AT_END = re.compile(r"(?:[?？؟]|か。?|[吗呢]。?|\bm[iu](?:sin|yim|ydi)?\.?)[\s\"'”»)]*$")
_ASKS_AT_BEGINNING = re.compile(
    r"\W*(?:(?:and|also|hey|hi|so|please|und|bitte|y|et|e|ve|ok),?\s+)?(?:"
    r"wh(?:at|ats|o|os|om|ose|ere|eres|en|ens|ich|y)|how|do|does|did|is|are|was|were|can|could|tell me|remind me|"
    r"wer|was|wann|wo|wie|wieso|warum|welche[rsnm]?|weisst|sag mir|qu[ei]|quien|cuando|donde|como|cual|dime|"
    r"quand|ou est|comment|quel(?:le)?s?|dis-moi|chi|cosa|quando|dove|come|quale|dimmi|kim|ne|nerede|hangi|nasil|"
    r"quem|onde|qual|谁|什么|哪|几)(?:\b|(?<=[^\x00-\x7f]))"
)


def is_question(text: str) -> bool:
    """Whether the text ends or begins like a question, in the languages of most use."""
    folded = fold(text)
    return bool(_ASKS_AT_END.search(folded) or _ASKS_AT_BEGINNING.match(folded))


def is_asking(text: str, asked: Set[str]) -> bool:
    """Whether the text is a question with no word besides those asked for: an earlier asking, which answers nothing."""
    return is_question(text) and set(lexemes(text)) <= asked
