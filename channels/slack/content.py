"""Blocks and attachments of Slack messages as text in Slack's markup, except the fields that `LEFT_OUT` names."""

from collections.abc import Iterable, Mapping

from channels.slack.markup import escape
from gateway.domain.text.texts import letters_in
from gateway.domain.time import unix_time_text

LEFT_OUT: Mapping[str, str] = {
    "ids, colours and how it is shown": """
        type style id ts block_id action_id callback_id color mrkdwn_in external_id source call_id bot_id app_id
        team_id team channel_id channel_team user_id author_id author_subname author_link author_icon footer_icon
        msg_subtype is_share is_msg_unfurl is_app_unfurl is_thread_root_unfurl original_url service_icon verbatim emoji
        response_url_enabled size alignment align expand is_wrapped column_settings indent border offset elapsed_time
        attachment_type unsafe skin_tone timestamp workflow dispatch_action_config language slack_file image_bytes
    """,
    "pictures, named by their titles": "image_url thumb_url video_url thumbnail_url provider_icon_url icon_url",
    "read elsewhere": "files metadata author_name fallback",
    "what a form needs": """
        value name confirm initial_option initial_options initial_date initial_time initial_date_time initial_user
        initial_users initial_channel initial_channels initial_conversation initial_conversations initial_value
        short filter max_selected_items min_query_length filetypes max_files dispatch_action focus_on_load multiline
        min_length max_length min_value max_value is_decimal_allowed default_to_current_conversation optional
        response_type timezone include_files
    """,
}
FIELDS = frozenset(" ".join(LEFT_OUT.values()).split())
_INLINE = {"rich_text_section", "rich_text_quote", "rich_text_preformatted"}


def shown(part: object) -> str:
    """A piece of a block in markup; a table as lines with cells between bars."""
    match part:
        case str():
            return part
        case list() | tuple():
            return "\n".join(filter(None, map(shown, part)))
        case {"type": "table", "rows": list(rows)}:
            return "\n".join(" | ".join(shown(cell).replace("\n", " ") for cell in row) for row in rows)
        case {"type": str(kind), "elements": list(elements)} if kind in _INLINE:
            return "".join(map(shown, elements))
        case {"type": "rich_text_list", "elements": list(elements), **about}:
            first = offset + 1 if isinstance(offset := about.get("offset"), int) else 1
            marks = (f"{first + at}." if about.get("style") == "ordered" else "•" for at in range(len(elements)))
            return "\n".join(f"{mark} {shown(each)}" for mark, each in zip(marks, elements, strict=True))
        case {"title": str(name), "value": value} | {"label": str(name), "value": int() | float() as value}:
            return f"{name}: {value}"
        case {"name": str(name), "data": list(data)}:
            return f"{name}: {', '.join(map(shown, data))}"
        case {"type": "call", "call": {"v1": {"name": str(name), **call}}}:
            return f"[call {name}: {call.get('join_url', '')}]"
        case {"type": "image", **about} if not (about.get("alt_text") or about.get("title")):
            return "[picture: not read; send it as a file]"
        case {"type": str(kind), **rest} if (word := _word(kind, rest)) is not None:
            return word
        case dict():
            return "\n".join(filter(None, (shown(value) for name, value in part.items() if name not in FIELDS)))
        case _:
            return ""


def _word(kind: str, part: Mapping[object, object]) -> str | None:
    """An element of rich text; None for other pieces."""
    match kind, part:
        case "text", {"text": str(text), "style": {"strike": True}}:
            return f"~{escape(text)}~"
        case "text", {"text": str(text)}:
            return escape(text)
        case "link", {"url": str(url)}:
            return f"<{url}|{part['text']}>" if part.get("text") else f"<{url}>"
        case "user", {"user_id": str(id)}:
            return f"<@{id}>"
        case "channel", {"channel_id": str(id)}:
            return f"<#{id}>"
        case ("usergroup", {"usergroup_id": str(id)}) | ("team", {"team_id": str(id)}):
            return f"@{id}"
        case "broadcast", {"range": str(whom)}:
            return f"@{whom}"
        case "emoji", {"name": str(name)}:
            return f":{name}:"
        case "date", {"fallback": str(date)}:
            return date
        case "date", {"timestamp": int(seconds)}:
            return unix_time_text(seconds)
        case "color" | "raw_number", {"value": value}:
            return str(value)
        case _:
            return None


def beside(text: str, parts: Iterable[object]) -> str:
    """The words of the parts that are not in the text, which often repeats a block."""
    said, more = letters_in(text), list[str]()
    for part in parts:
        if (words := shown(part).strip()) and letters_in(words) not in said:
            more.append(words)
    return "\n\n".join(more)
