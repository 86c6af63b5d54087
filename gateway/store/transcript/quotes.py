"""Quotes: whose words a message replies to, by the platform's id of what it quotes."""

import re

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow

_SAID = """
select m.label, m.text, m.text as shown from inbox i join messages m on m.id = i.message_id
where (i.channel, i.account, i.chat, i.platform_id) = ($1, $2, $3, $4) and m.principal_id = $5 and m.kind = 'user'
union all
select m.label, m.text, o.text from addresses a
join outbox o on o.address_id = a.id join messages m on m.id = o.message_id
where (a.channel, a.account, a.chat, o.platform_id) = ($1, $2, $3, $4) and m.principal_id = $5 and m.kind = 'assistant'
"""
_MARKUP = re.compile(r"\]\([^()\s]*\)|^[ \t]*(?:`{3,}|~{3,}).*$", re.MULTILINE)
_FILE = re.compile(r"\A\[(?:animation|audio|document|image|photo|ptv|sticker|video|voice|(?:voice|video) message)\]")


async def label(conn: Connection, at: AddressRow, inbound: Inbound) -> Label:
    """The label of the message that is quoted, if this principal's chat holds it and the quote is in its text.

    UNTRUSTED for all else: some platforms let the sender write the quote. What the gateway itself said may name others.
    """
    found = await conn.fetch(_SAID, at.channel, at.account, at.chat, inbound.quoted_id, at.principal_id)
    for row in found if inbound.quoted_id else ():
        if any(holds(text, inbound.quoted) for text in (row["text"], row["shown"])):
            return Label(row["label"])
    return Label.UNTRUSTED


def holds(text: str, quote: str) -> bool:
    """Whether the quote is in the text, as far as letters and digits tell: platforms show Markdown their own way."""
    part = _letters(_FILE.sub("", quote))
    return part in _letters(text) or part in _letters(_MARKUP.sub(" ", text))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))
