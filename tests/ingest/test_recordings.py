"""Recordings are recognised by their bytes, whatever they are called."""

from pathlib import Path

import pytest

from gateway.ingest.sniff import sniff


def box(name: bytes, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + name + body


def movie(brand: bytes, *tracks: bytes) -> bytes:
    """As a recorder writes it: the tracks stand behind the samples."""
    handlers = b"".join(box(b"trak", box(b"hdlr", bytes(8) + track + bytes(12))) for track in tracks)
    return box(b"ftyp", brand + bytes(4)) + box(b"mdat", bytes(90_000)) + box(b"moov", handlers)


@pytest.mark.parametrize(
    ("data", "kind", "mime"),
    [
        *((movie(brand, b"soun"), "audio", "audio/mp4") for brand in (b"M4A ", b"isom", b"mp42", b"M4B ", b"dash")),
        (movie(b"isom", b"soun", b"vide"), "video", "video/mp4"),
        (movie(b"3gp4", b"soun"), "audio", "audio/3gpp"),
        *(
            (bytes((255, sync, 0x50)) + bytes(400), "audio", "audio/mpeg")
            for sync in (0xFA, 0xFB, 0xF2, 0xF3, 0xE2, 0xE3)
        ),
        (b"ID3\4\0", "audio", "audio/mpeg"),
        *((bytes((255, sync, 0x50)) + bytes(400), "audio", "audio/aac") for sync in (0xF1, 0xF9)),
        (b"OggS\0\2" + bytes(22) + b"OpusHead", "audio", "audio/ogg"),
        (b"OggS\0\2" + bytes(22) + b"\x80theora", "video", "video/ogg"),
        (b"\x1aE\xdf\xa3 webm \x86\x86A_OPUS", "audio", "audio/webm"),
        (b"\x1aE\xdf\xa3 webm \x86\x86A_OPUS V_VP9", "video", "video/webm"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio", "audio/wav"),
        (b"caff\0\1", "audio", "audio/x-caf"),
        (b"FORM\0\0\0\0AIFF", "audio", "audio/aiff"),
        (b"#!AMR\n", "audio", "audio/amr"),
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "audio", "audio/x-ms-wma"),
        (b"FLV\1\5\0\0\0\x09", "video", "video/mpeg"),
        (b"\x28\xb5\x2f\xfd\0", "archive", "application/zstd"),
        ("\ufeffwords".encode("utf-16-le"), "text", "text/plain"),
        ("ярлык;цена".encode("cp1251"), "text", "text/plain"),
        *((text, "text", "text/plain") for text in (b"BMW 320d", b"GIF8 or PNG?", b"Rar! It went", b"ID3 tags")),
        (b"a script that looks for %PDF-1.7", "text", "text/plain"),
    ],
)
def test_a_recording_is_what_its_bytes_say(tmp_path: Path, data: bytes, kind: str, mime: str) -> None:
    (tmp_path / "file").write_bytes(data)
    assert sniff(tmp_path / "file", "PTT-1.opus", "application/octet-stream") == (kind, mime)
