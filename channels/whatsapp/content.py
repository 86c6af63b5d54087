"""Kinds of WhatsApp messages in words: every text in them that a person sees, and a name for what can't be read."""

import re
from collections.abc import Iterator, Mapping

from google.protobuf.message import Message as Proto
from google.protobuf.unknown_fields import UnknownFieldSet
from neonize.proto.waE2E import WAWebProtobufsE2E_pb2 as e2e

from gateway.domain.time import unix_time_text

FILES = ("imageMessage", "videoMessage", "ptvMessage", "audioMessage", "documentMessage", "stickerMessage")

LEFT_OUT_KINDS: Mapping[str, str] = {
    "WhatsApp's own keys, settings and receipts": """
        senderKeyDistributionMessage call chat protocolMessage fastRatchetKeySenderKeyDistributionMessage
        messageContextInfo stickerSyncRmrMessage keepInChatMessage pinInChatMessage scheduledCallEditMessage
        callLogMesssage messageHistoryBundle bcallMessage albumMessage statusNotificationMessage
        messageHistoryNotice groupRootKeyShare rootSecretDistributeMessage statusLinkPreviewMetadata
    """,
    "encrypted for the phone alone": "pollUpdateMessage encReactionMessage encEventResponseMessage",
    "a reaction starts no turn": "reactionMessage",
}
LEFT_OUT_FIELDS: Mapping[str, str] = {
    "ids, keys, addresses of stored bytes and technical names": """
        contextInfo ID JID selectedID selectedButtonID selectedRowID productID retailerID firstImageID orderID
        sellerJID token catalogType businessOwnerJID bizJID groupJID inviteCode newsletterJID eventID reminderID
        instanceID payeeJID payerJID requesterJID splitID participantJID stickerPackID stickerKey revealKeyID
        optionHash lastEditStanzaID referralID requestFrom templateID stanzaID songID musicContentMediaID
        artworkDirectPath artworkUri trayIconFileName imageDataHash directPath thumbnailDirectPath mimetype
        attachmentMimetype attachmentDirectPath transactionData buttonID participant remoteJID consentedUsersURL
        unconsentedUsersURL metadataURL staticURL dashManifestURL qrURL signedURL imagePreviewURL imageHighResURL
        thumbnailURL thumbnailImageURL profilePictureURL profileIconURL fileName elementName namespace fallbackLg
        fallbackLc deterministicLg deterministicLc codeLanguage songUri messageParamsJSON platform payeeVpa
    """,
    "told as quote, mention or source": """
        quotedMessage mentionedJID questionReplyQuotedMessage forwardedNewsletterMessageInfo
    """,
    "how a message was counted, found and shown": """
        placeholderKey conversionSource entryPointConversionSource entryPointConversionApp disappearingMode
        parentGroupJID groupSubject trustBannerType groupMentions utm businessMessageForwardInfo smbClientCampaignID
        smbServerCampaignID dataSharingContext entryPointConversionExternalSource entryPointConversionExternalMedium
        ctwaSignals forwardedAiBotMessageInfo urlTrackingMap memberLabel statusAttributions statusAudienceMetadata
        botMessageSharingInfo mediaDomainInfo businessInteractionPills posterStatusID instagramThreadLink aiProvenance
        partnerDeepLinkToken featureEligibilities
    """,
}
KINDS, FIELDS = (frozenset(" ".join(table.values()).split()) for table in (LEFT_OUT_KINDS, LEFT_OUT_FIELDS))
_TOLD = {*KINDS, *FILES, "conversation", "extendedTextMessage"}
_PLACES = {"locationMessage": "location", "liveLocationMessage": "live location"}
_NUMBERS = {"degreesLatitude", "degreesLongitude", "optionVoteCount", "itemCount"}
_THOUSANDTHS = {"priceAmount1000", "salePriceAmount1000", "totalAmount1000", "amount1000"}
_TIMES = {"startTime": 1, "endTime": 1, "scheduledTimestampMS": 1000}
_NAMES = {"poll creation": "poll", "contacts array": "contacts", "enc comment": "comment", "secret encrypted": "edit"}
_PICTURES = {*FILES, "productImage", "catalogImage"}


def is_own(kind: str) -> bool:
    """Whether its sender wrote the content of this kind; that of cards, lists and invitations is somebody else's."""
    return kind in {*FILES, *_PLACES, "conversation", "extendedTextMessage"} or kind.startswith("pollCreation")


def described(message: e2e.Message) -> Iterator[tuple[str, str]]:
    """Yield kind and words of everything in a message that is neither a text nor a file."""
    names = {field.name for field, _ in message.ListFields()}
    if names <= {"messageContextInfo"} and len(UnknownFieldSet(message)):
        yield "newer", _unread("kind of message newer than this program")
    for field, content in message.ListFields():
        kind = field.name
        if kind in _PLACES:
            where = f"[{_PLACES[kind]} {content.degreesLatitude:.5f}, {content.degreesLongitude:.5f}]"
            told = (str(getattr(content, name, "")) for name in ("name", "address", "URL", "comment", "caption"))
            yield kind, " ".join(filter(None, (where, *told)))
        elif kind not in _TOLD and not isinstance(content, e2e.FutureProofMessage | e2e.DeviceSentMessage):
            words = list(words_in(content)) if isinstance(content, Proto) else [str(content)]
            between = "\n" if kind.startswith("contact") else " / "
            yield kind, f"[{_named(kind)}] {between.join(words)}" if words else _unread(kind)


def words_in(content: Proto) -> Iterator[str]:
    """Yield the texts of a content and of all that is nested in it, in the order of the schema."""
    for field, value in content.ListFields():
        for each in () if _is_left_out(content, field.name) else value if field.is_repeated else (value,):
            if field.name in _PICTURES:
                yield f"({_named(field.name)} in it: not read; send it by itself)"
            if isinstance(each, Proto):
                yield from words_in(each)
            elif isinstance(each, str):
                yield each
            elif field.name == "isCanceled" and each:
                yield "canceled"
            elif field.name in _TIMES:
                yield unix_time_text(each / _TIMES[field.name])
            elif field.name in _THOUSANDTHS:
                yield f"{each / 1000:g}"
            elif field.name in _NUMBERS:
                yield f"{each:.5f}".rstrip("0").rstrip(".")


def _is_left_out(content: Proto, field: str) -> bool:
    """Whether a field has nothing for people; the address of a file tells only where its encrypted bytes are."""
    return field in FIELDS or (field == "URL" and "directPath" in content.DESCRIPTOR.fields_by_name)


def _named(kind: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"(Message)?(V\d)?$", "", kind)).lower()
    return _NAMES.get(words, words)


def _unread(kind: str) -> str:
    return f"[{_named(kind)}: not readable here; say in words what it is, or send it as a file]"
