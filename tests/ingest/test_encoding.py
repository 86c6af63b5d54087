"""Texts of the encodings that offices and systems have written."""

import pytest

from gateway.ingest.encoding import decode, detected

RUSSIAN = "Товар;Количество;Цена\nЯблоки;3;120\nАпельсины;5;80\nИтого;;760\n"
GERMAN = "Grüße aus Köln, schöne Tage für alle\n"
JAPANESE = "品目,数量,単価\nりんご,3,120\nみかん,5,80\n合計,,760\n"
EBCDIC = ("Hello customer number 5, your order is ready. " * 3).encode("cp500")
"""Of mainframes: in none of the encodings that are tried."""
TEXTS = (
    (RUSSIAN, ("cp1251", "koi8_r", "cp866", "mac_cyrillic", "utf-16-le", "utf-32-be")),
    ("Завтра встречаемся на вокзале в три часа дня.\n", ("iso8859_5",)),
    ("Зустрінемося завтра на вокзалі о третій годині, їжак.\n", ("koi8_u",)),
    ("Sejdeme se zítra ve tři na nádraží, žluťoučký kůň.\n", ("iso8859_2", "cp852")),
    ("Προϊόν;Ποσότητα;Τιμή\nΜήλα;3;120\nΠορτοκάλια;5;80\n", ("cp1253",)),
    (JAPANESE, ("cp932", "euc_jp", "iso2022_jp", "utf-16-le", "utf-16-be")),
    ("品名,数量,单价\n苹果,3,12\n橙子,5,8\n合计,,76\n", ("gb18030", "hz", "utf-16-le")),
    ("品名,數量,單價\n蘋果,3,12\n橙子,5,8\n合計,,76\n", ("big5",)),
    ("會議在星期五下午三點開始，請準時參加\n", ("big5",)),
    ("Šeštadienį susitinkame prie ežero, ąžuolų paunksmėje\n", ("cp1257",)),
    ("품목,수량,단가\n사과,3,1200\n배,5,800\n합계,,7600\n", ("cp949",)),
    ("Zażółć gęślą jaźń; łódź, świeży chleb i żółty ser\n", ("cp1250",)),
    (GERMAN, ("cp1252", "mac_roman", "cp437", "utf-16-be", "utf-32-le")),
    ("Été à la plage, déjà vu, garçon\n", ("cp1252", "mac_roman")),
    ("שלום לכולם, הפגישה מחר בבוקר\n", ("cp1255",)),
    ("مرحبا بالجميع، الاجتماع غدا صباحا\n", ("cp1256",)),
    ("สวัสดีครับ ประชุมพรุ่งนี้เช้า\n", ("tis_620",)),
    ("Yarın sabah görüşürüz, çok teşekkürler, İstanbul'da şeker\n", ("cp1254",)),
)


@pytest.mark.parametrize(("text", "encoding"), [(text, each) for text, encodings in TEXTS for each in encodings])
def test_a_text_without_a_mark_is_read_in_its_encoding(text: str, encoding: str) -> None:
    found = detected(text.encode(encoding))
    assert found is not None
    assert found.text == text


@pytest.mark.parametrize(
    ("raw", "text", "doubt"),
    [
        (GERMAN.encode(), GERMAN, False),
        (GERMAN.encode() + b"\xfc" + GERMAN.encode(), GERMAN + "\ufffd" + GERMAN, False),
        ("Müller".encode("cp1252"), "Müller", True),
        (JAPANESE.encode("cp932"), JAPANESE, True),
        ((JAPANESE * 9).encode("cp932"), JAPANESE * 9, False),
        (EBCDIC, EBCDIC.decode("cp866"), True),
    ],
)
def test_one_bad_byte_spoils_one_character_and_a_doubt_is_told(raw: bytes, text: str, doubt: bool) -> None:
    found = detected(raw)
    assert found is not None
    assert (found.text, bool(found.guess)) == (text, doubt)


@pytest.mark.parametrize(
    "raw",
    [
        b"10:01 start\n10:02\0 end\n",
        b"\0" * 9_000 + b"10:02 end\n",
        b"a,b\n1,2\n3,4\n\x1a",
        b"ten\x07 bells\x0b and\x1c more",
    ],
)
def test_control_characters_are_no_reason_to_refuse_a_text(raw: bytes) -> None:
    assert decode(raw) is not None


@pytest.mark.parametrize(
    "raw", [b"\0\1\2\3", b"\0" * 50, bytes(range(256)) * 9, b"\x7fELF\2\1\1" + bytes(9) + b"\3\0>\0\1"]
)
def test_binary_data_is_no_text(raw: bytes) -> None:
    assert decode(raw) is None
