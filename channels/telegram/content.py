"""The content of a message in words: kinds beside text and files, and what stands behind or beside the words.

Imports aiogram, so run `load_aiogram` first.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from aiogram.types import ExternalReplyInfo, Location, Message, MessageEntity, TextQuote
from aiogram.utils.text_decorations import HtmlDecoration
from pydantic import BaseModel

from gateway.domain.text.marks import quoted
from gateway.domain.time import unix_time_text

# the first match counts: an animation is also a document, a venue also a location
KINDS = (
    *("animation", "photo", "paid_media", "voice", "audio", "video_note", "video", "sticker", "document"),
    *("venue", "location", "contact", "poll", "dice", "story", "checklist", "rich_message", "game", "invoice"),
    *("giveaway", "giveaway_winners", "users_shared", "chat_shared", "gift", "unique_gift", "web_app_data"),
    *("poll_option_added", "checklist_tasks_added", "passport_data", "successful_payment"),
)
LEFT_OUT: Mapping[str, str] = {
    "who wrote, where and when": """
        message_id date edit_date chat from_user sender_chat sender_tag sender_business_bot business_connection_id
        author_signature message_thread_id direct_messages_topic is_topic_message via_bot receiver_user
        ephemeral_message_id guest_query_id guest_bot_caller_user guest_bot_caller_chat media_group_id
    """,
    "read as quote or source of a forward": """
        reply_to_message external_reply quote reply_to_story reply_to_checklist_task_id reply_to_poll_option_id
        forward_origin forward_from forward_from_chat forward_from_message_id forward_signature forward_sender_name
        forward_date is_automatic_forward poll_message checklist_message
    """,
    "how it is shown": """
        has_protected_content has_media_spoiler show_caption_above_media is_from_offline is_paid_post
        paid_star_count effect_id sender_boost_count suggested_post_info live_photo background mask_position
        needs_repainting thumbnail cover qualities colors model symbol backdrop offset length position
    """,
    "Telegram's own notes on a chat": """
        new_chat_members left_chat_member chat_owner_left chat_owner_changed new_chat_title new_chat_photo
        delete_chat_photo group_chat_created supergroup_chat_created channel_chat_created migrate_to_chat_id
        migrate_from_chat_id message_auto_delete_timer_changed pinned_message refunded_payment connected_website
        write_access_allowed proximity_alert_triggered boost_added chat_background_set checklist_tasks_done
        direct_message_price_changed forum_topic_created forum_topic_edited forum_topic_closed forum_topic_reopened
        general_forum_topic_hidden general_forum_topic_unhidden giveaway_created giveaway_completed gift_upgrade_sent
        managed_bot_created paid_message_price_changed poll_option_deleted suggested_post_approved
        suggested_post_approval_failed suggested_post_declined suggested_post_paid suggested_post_refunded
        video_chat_started video_chat_ended video_chat_participants_invited video_chat_scheduled user_shared
        community_chat_added community_chat_joined community_chat_removed
    """,
    "ids, technical names and what only buttons and payments need": """
        file_id file_unique_id file_name file_path mime_type codec id gift_id owned_gift_id persistent_id hash secret
        data email custom_emoji_id option_persistent_id foursquare_id foursquare_type google_place_id google_place_type
        start_parameter invoice_payload telegram_payment_charge_id provider_payment_charge_id shipping_option_id
        order_info set_name type language date_time_format country_codes align valign style point origin username
        callback_data bot_username forward_text switch_inline_query switch_inline_query_current_chat query name
        base_name language_code rarity last_resale_currency user request_write_access
    """,
}
WORDED = frozenset(KINDS[KINDS.index("sticker") :]) - {"document"}
"""Kinds that are words, or words as well."""
FIELDS = frozenset(" ".join(LEFT_OUT.values()).split())
NOTES = frozenset(LEFT_OUT["Telegram's own notes on a chat"].split())
UNREADABLE = {"story": "send it as a file", "paid_media": "send it as a file", "passport_data": "write it as text"}
_NAMES = {"voice": "voice message", "video_note": "video message"}
_FACTS = ("total_amount", "star_count", "prize_star_count", "winner_count", "winners_selection_date", "close_date")
_MEANT = " ← meant"
_PAGE_LINES = ("paragraph", "heading", "pre", "footer", "pullquote")


class _Words(HtmlDecoration):
    """A text with what its entities hide: `behind` has the targets of links, unless they are shown `inline`."""

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self.behind: list[str] = []

    def of(self, said: Message | TextQuote) -> str:
        """The text or caption; as it is if an entity begins or ends within a character."""
        text = said.text or (said.caption if isinstance(said, Message) else "") or ""
        entities = said.entities or (said.caption_entities if isinstance(said, Message) else None)
        try:
            return self.unparse(text, entities) if entities else text
        except UnicodeError:
            return text

    def quote(self, value: str) -> str:
        """Words without any mark."""
        return value

    def apply_entity(self, entity: MessageEntity, text: str) -> str:
        """The words of an entity, and beside them what hides in it."""
        match entity.type:
            case "text_link":
                self.behind.append(f'link behind "{text}": {entity.url}')
                return f"{text} ({entity.url})" if self._inline else text
            case "date_time" if entity.unix_time is not None:
                self.behind.append(f'"{text}" means {unix_time_text(entity.unix_time)}')
            case "spoiler":
                return f"||{text}||"
            case "strikethrough":
                return f"~~{text}~~"
            case "blockquote" | "expandable_blockquote":
                return f"\n{quoted(text)}\n"
        return text


def told(said: Message | TextQuote, *, inline: bool) -> str:
    """A text or caption with spoilers between bars and quotes as such; `inline`: each address beside its words."""
    return _Words(inline=inline).of(said)


def added_to(message: Message, text: str) -> str:
    """Additions behind or beside the `text` of a message: targets of links, times, titles, links of a page, buttons."""
    words, kind = _Words(inline=False), kind_of(message)
    words.of(message)
    beside = getattr(message, kind) if kind and (kind not in WORDED or kind == "rich_message") else None
    facts = strings_in([beside, message.link_preview_options, message.reply_markup])
    behind = words.behind if message.forward_origin is None else []  # in a forwarded text they are shown inline
    return "\n".join(dict.fromkeys([*behind, *(each for each in facts if each not in text)]))


def strings_in(part: object) -> Iterator[str]:
    """Yield all texts in a part of a message that a person sees."""
    match part:
        case str():
            yield part
        case BaseModel():
            for name in type(part).model_fields:
                value = getattr(part, name, None)
                fact = unix_time_text(value.timestamp()) if isinstance(value, datetime) else value
                if name in _FACTS and fact is not None:
                    yield f"{name.replace('_', ' ')} {fact}"
                elif name not in FIELDS:
                    yield from strings_in(value)
        case list():
            for each in part:
                yield from strings_in(each)


def kind_of(message: Message | ExternalReplyInfo) -> str | None:
    """The field with the content of a message without a text."""
    return next((field for field in KINDS if getattr(message, field, None)), None)


def described(message: Message | ExternalReplyInfo, meant: int | str | None = None) -> str | None:
    """The content of a message without a text; of a file only its kind, of what can't be read what to do.

    `meant` is the task or option of it to which a reply points.
    """
    if (kind := kind_of(message)) is None:
        return None
    value, name = getattr(message, kind), _NAMES.get(kind, kind.replace("_", " "))
    if kind == "rich_message":
        return _page(value.model_dump()).strip() or f"[{name}]"
    if kind in UNREADABLE:
        return f"[{name}: not readable here; {UNREADABLE[kind]}]"
    told = _details(kind, value, meant)
    rest = strings_in(value) if kind in WORDED else ()
    more = "; ".join(each for each in rest if each not in told)
    return f"[{' '.join(filter(None, (name, '; '.join(filter(None, (told, more))))))}]"


def _details(kind: str, value: Any, meant: int | str | None) -> str:
    match kind:
        case "location":
            return _place(value)
        case "venue":
            return f"{value.title}, {value.address}, {_place(value.location)}"
        case "contact":
            return ", ".join(filter(None, (f"{value.first_name} {value.last_name or ''}".strip(), value.phone_number)))
        case "poll":
            pointed = ((each, _MEANT * (each.persistent_id == meant)) for each in value.options)
            votes = (f"{each.text}{f' ({each.voter_count})' * bool(each.voter_count)}{mark}" for each, mark in pointed)
            return f"{value.question} {' / '.join(votes)}"
        case "dice":
            return f"{value.emoji} {value.value}"
        case "checklist":
            tasks = (
                f"[{'x' if task.completion_date else ' '}] {task.text}{_MEANT * (task.id == meant)}"
                for task in value.tasks
            )
            return "; ".join((value.title, *tasks))
        case _:
            return ""


def _place(location: Location) -> str:
    """The coordinates, to a metre; of a live location those of now."""
    return f"{round(location.latitude, 5)}, {round(location.longitude, 5)}{' (live)' * bool(location.live_period)}"


def _page(part: object) -> str:
    """The text of a rich message, given as JSON of its blocks; of pictures and maps that they are there."""
    match part:
        case str():
            return part
        case list():
            return "".join(map(_page, part))
        case {"cells": list(rows)}:
            return "".join(" | ".join(map(_page, row)) + "\n" for row in rows)
        case {"label": label, "blocks": blocks}:
            return f"{label} {_page(blocks)}"
        case {"summary": summary, "blocks": blocks}:
            return f"{_page(summary)}\n{_page(blocks)}"
        case {"type": kind, "text": text} if kind in _PAGE_LINES:
            return f"{_page(text)}\n"
        case {"type": "map", "location": {"latitude": float(latitude), "longitude": float(longitude)}}:
            return f"[map {latitude:.5f}, {longitude:.5f}]\n"
        case {"type": str(kind), "caption": _, **fields} if kind in fields:
            return f"[{_NAMES.get(kind, kind)} in it: not read; send it by itself]\n"
        case dict():
            says = (part.get(key) for key in ("text", "blocks", "items", "expression", "alternative_text"))
            return "".join(map(_page, says))
        case _:
            return ""
