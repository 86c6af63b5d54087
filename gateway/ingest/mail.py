"""E-mails and what they carry: attachments, letters in letters, invitations; mailboxes; Outlook's .msg."""

import codecs
import mailbox
import re
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage, Message, MIMEPart
from email.parser import BytesParser
from itertools import chain, islice
from pathlib import Path

from gateway.ingest.encoding import decode, decoded_as
from gateway.ingest.output import MAX_FILES, Output
from gateway.ingest.text import decode_html, html_text, page_text, parsed_html, start_of

_SECURED = {
    "application/pkcs7-mime": "encrypted or signed body (S/MIME)",
    "multipart/encrypted": "encrypted body (PGP)",
    "application/pgp-encrypted": "encrypted body (PGP)",
    "message/external-body": "attachment that is kept elsewhere",
}
_SIGNATURES = frozenset({"application/pkcs7-signature", "application/pgp-signature"})
_OTHER_TEXT = re.compile("text/(?!calendar)")
_HEADERS = ("From", "Reply-To", "To", "Cc", "Bcc", "Date", "Subject")


def read_mail(source: Path, out: Output) -> str:
    """Read the text and the invitation, then each attachment as a file; returns the description."""
    raw = start_of(source, out)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raw = (decode(raw) or "").encode()
    head = re.split(rb"(?<=\n)\r?\n", raw, maxsplit=1)[0]
    raw = (decode(head) or "").encode() + raw[len(head) :]
    message = BytesParser(EmailMessage, policy=policy.default).parsebytes(raw)
    parts = list(_leaves(message, out))
    body = _body(message)
    files = [part for part in parts if part is not body and not _is_shown(part)]
    texts = [_content(part, out) for part in parts if part is body or _is_shown(part)]
    lines = [f"{name}: {_header(message, name)}" for name in _HEADERS if message[name]]
    if files:
        lines.append(f"Attached: {', '.join(map(_file_name, files))}")
    out.add("\n".join([*lines, "", *texts]))
    for part in files:
        out.add_file(_file_name(part), _bytes(part))
    return f"e-mail from {_header(message, 'From')}: {_header(message, 'Subject')}"


def _header(message: Message, name: str) -> str:
    return " ".join(str(message[name] or "").split())


def _leaves(message: EmailMessage, out: Output) -> Iterator[EmailMessage]:
    """The parts that hold something; of alternatives the best text, and an invitation."""
    kind = message.get_content_type().replace("/x-", "/")
    if secured := _SECURED.get(kind):
        out.leave_out(secured)
    elif kind == "multipart/alternative":
        best = _body(message)
        leaves = chain.from_iterable(_leaves(part, out) for part in _parts(message))
        yield from (each for each in leaves if best in (None, each) or not _OTHER_TEXT.match(each.get_content_type()))
    elif message.is_multipart() and message.get_content_maintype() == "multipart":
        yield from chain.from_iterable(_leaves(part, out) for part in _parts(message))
    elif kind not in _SIGNATURES:
        yield message


def _body(message: EmailMessage) -> MIMEPart | None:
    """The plain text, unless that only points to the one in HTML, or has none of its links."""
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    if plain is None or html is None:
        return plain or html
    text, page = _content(plain), _content(html)
    return html if len(page) > 3 * len(text) + 100 or ("://" in page and "://" not in text) else plain


def _parts(message: MIMEPart) -> list[EmailMessage]:
    return [part for part in message.iter_parts() if isinstance(part, EmailMessage)]


def _is_shown(part: EmailMessage) -> bool:
    """Whether it belongs to the text of the letter."""
    shown = part.get_content_type() in {"text/plain", "text/html", "text/calendar", "message/delivery-status"}
    return shown and not part.is_attachment() and not part.get_filename()


def _content(part: MIMEPart, out: Output | None = None) -> str:
    raw = _bytes(part)
    charset = part.get_content_charset("")
    if part.get_content_type() == "text/html":
        root = parsed_html(decode_html(raw, charset))
        return page_text(root, out) if out else html_text(root)
    try:
        return decoded_as(raw, charset)
    except (LookupError, UnicodeError):
        return decode(raw) or ""


def _bytes(part: MIMEPart) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b"\n".join(each.as_bytes() for each in _parts(part))


def _file_name(part: EmailMessage) -> str:
    if name := part.get_filename():
        return str(name)
    if part.get_content_type() == "message/rfc822" and (inner := _parts(part)):
        return f"{_header(inner[0], 'Subject') or 'letter'}.eml"
    return f"without a name ({part.get_content_type()})"


def read_mbox(source: Path, out: Output) -> str:
    """Read each letter of a mailbox as a file; returns the description."""
    box = mailbox.mbox(source, create=False)
    for number, key in enumerate(islice(box.keys(), MAX_FILES), 1):
        out.add_file(f"letter {number}.eml", box.get_bytes(key))
    out.leave_out(f"further letter (after {MAX_FILES})", max(0, len(box) - MAX_FILES))
    return f"mailbox, {len(box):,} letters: {out.first_line()}"


def read_msg(source: Path, out: Output) -> str:
    """Read a letter saved by Outlook, then its attachments; returns the description."""
    from oxmsg import Message as Letter

    letter = Letter.load(str(source))
    to = ", ".join(f"{each.name} <{each.email_address}>" for each in letter.recipients)
    lines = [f"From: {letter.sender or ''}\nTo: {to}\nDate: {letter.sent_date or ''}\nSubject: {letter.subject or ''}"]
    body = letter.body or html_text(parsed_html(letter.html_body or ""))
    out.leave_out("body in rich text (save the letter as .eml)", not body.strip())
    files = letter.attachments
    if files:
        lines.append(f"Attached: {', '.join(each.file_name or 'without a name' for each in files)}")
    out.add("\n".join([*lines, "", body]))
    for each in files:
        if content := each.file_bytes:
            out.add_file(each.file_name or "without a name", content)
        else:
            out.leave_out("attached letter or link")
    return f"e-mail from {letter.sender or ''}: {letter.subject or ''}"
