import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.lexemes import LETTERS_KEPT, MAX_ID_LENGTH, MAX_LEXEMES, lexemes


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("When is the dentist?", "Dentists ring back at noon"),
        ("Wo ist der Schlüssel?", "Die SCHLUSSEL liegen im Flur"),
        ("¿Dónde está el camión?", "vendimos los camiones"),
        ("IŞIK nerede", "ışık açık"),
        ("Wie groß ist Łódź", "LODZ ist gross"),
        ("Где ключи от квартиры", "в квартире холодно"),
        ("Когда приём у врача", "Запись к врачу"),
        ("Πού είναι το αυτοκίνητο", "ΑΥΤΟΚΙΝΗΤΑ"),
        ("ο γιατρός", "του γιατρού"),
        ("猫の名前は何ですか", "うちの猫はタマです"),
        ("東京出張はいつ", "来週は東京に行く"),
        ("コーヒーが好き？", "ｺｰﾋｰを二杯"),
        ("我的猫叫什么名字", "猫生病了"),
        ("机场怎么去", "明天到机场接我"),
        ("학교에서 뭐 했어", "학교가 멀다"),
        ("집에 언제 가", "집"),
        ("친구에게는 비밀", "친구 생일"),
        ("ร้านอาหารอยู่ที่ไหน", "เราชอบร้านอาหารไทย"),
        ("ກິນເຂົ້າ", "ໄປກິນເຂົ້າ"),
        ("أين المدرسة", "بالمدرسة معلّم جديد"),
        ("متى الاِجتماع", "اجتماعات كثيرة"),
        ("איפה הספר", "שני ספרים"),
        ("מתי הפגישה", "בפגישה דיברנו"),
        ("लड़की कहाँ है", "लड़के आए"),
        ("किताब", "किताबों"),
        ("চাবি কোথায়", "আমার চাবি নেই"),
        ("סִפּוּר", "סיפור ספור"),
        ("order 118204/26", "Ref. NPP 118204/26"),
        ("costs 1,250", "1250 euros"),
        ("٢٥ درهم", "25"),
    ],
)
def test_a_query_meets_a_row_in_its_script(query: str, row: str) -> None:
    assert set(lexemes(query)) & set(lexemes(row))


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("Where is the car?", "This is where the bus is"),
        ("Wo ist das Auto?", "Das ist nicht wo der Bus ist"),
        ("ここはどこですか", "これはなんでしたか"),
        ("这是什么", "我的猫叫什么"),
        ("1250", "12500"),
        ("INV-2041", "INV-2042"[4:]),
        ("мама", "папа"),
        ("पानी", "पुल"),
    ],
)
def test_what_shares_only_common_words_does_not_meet(query: str, row: str) -> None:
    assert not set(lexemes(query)) & set(lexemes(row))


def test_words_are_cut_but_ids_and_numbers_are_whole() -> None:
    assert lexemes("Reservations GB29NWBK60161331926819 20261123") == ("reser", "gb29nwbk60161331926819", "20261123")


def test_a_word_that_is_a_name_or_a_thing_elsewhere_is_kept() -> None:
    assert lexemes("my son Hans and his men saw Mia") == ("son", "hans", "men", "saw", "mia")


def test_a_text_of_common_words_keeps_them() -> None:
    assert lexemes("Who was it?") == ("who", "was", "it")
    assert lexemes("?! 🙂") == ()


@given(st.text())
def test_lexemes_fit_a_tsvector(text: str) -> None:
    found = lexemes(text)
    assert len(set(found)) == len(found)
    assert all(0 < len(lexeme) <= MAX_ID_LENGTH and "\0" not in lexeme and not lexeme.isspace() for lexeme in found)
    assert all(len(lexeme) <= LETTERS_KEPT or any(c.isdigit() for c in lexeme) for lexeme in found)


def test_a_long_text_is_bounded() -> None:
    assert len(lexemes(" ".join(f"{n:06}" for n in range(3 * MAX_LEXEMES)))) == MAX_LEXEMES


@given(st.text(alphabet="aé ı猫か한글ก्कال5", max_size=30))
def test_case_and_form_do_not_matter(text: str) -> None:
    assert lexemes(unicodedata.normalize("NFD", text)) == lexemes(unicodedata.normalize("NFC", text))
