"""/voice: when answers in this chat are also read aloud."""

from dataclasses import replace

from gateway.commands import DEFAULT, Command, CommandContext, CommandReply
from gateway.domain.principals import Role
from gateway.domain.settings import VoiceReply, voice_reply
from gateway.store.delivery import addresses

_CHOICES: dict[str, VoiceReply | None] = {"off": "off", "notes": "voice", "always": "always", DEFAULT: None}
_MEANING: dict[VoiceReply, str] = {"off": "never", "voice": "for answers to voice notes", "always": "always"}


async def run(ctx: CommandContext) -> CommandReply:
    """Show when, or set it: the owner as they like, others never to more than `voice.reply`."""
    said, usual, owner = ctx.argument.strip().lower(), ctx.services.voice(), ctx.role is Role.OWNER
    if said and said not in _CHOICES:
        return CommandReply(f"There is no such choice. One of: {', '.join(_CHOICES)}")
    if usual.model is None:
        return CommandReply("Nothing reads answers aloud yet; the owner chooses a model in voice.model.")
    chosen = _CHOICES[said] if said else ctx.at.voice
    if said and voice_reply(chosen, usual.reply, owner=owner) != (chosen or usual.reply):
        return CommandReply("Only the owner makes answers read aloud more often than voice.reply says.")
    if said:
        await addresses.choose(ctx.tx, replace(ctx.at, voice=chosen))
    now = _MEANING[voice_reply(chosen, usual.reply, owner=owner)]
    until = f"until /voice {DEFAULT}" if chosen else "as voice.reply says"
    return CommandReply(f"Voice messages in this chat: {now}, {until}\n/voice changes it: {', '.join(_CHOICES)}")


command = Command("voice", "when answers are also voice messages here: off, notes, always", run)
