"""Questions: whether a text asks, whether it says more than what is asked, and which time it names."""

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import TypeVar

from gateway.memory.lexemes import fold, lexemes

Value = TypeVar("Value")

_ASKS_AT_END = re.compile(
    r"(?:[?？؟]|か。?|っけ。?|教えて(?:ください)?。?|[吗呢]。?|\bm[iu](?:sin|yim|ydi)?\.?)[\s\"'”»)]*$"
)
_ASKS_AT_BEGINNING = re.compile(
    r"\W*(?:(?:and|also|hey|hi|so|please|und|bitte|y|et|e|ve|ok),?\s+)?(?:"
    r"wh(?:at|ats|o|os|om|ose|ere|eres|en|ens|ich|y)|how|do|does|did|is|are|was|were|can|could|tell me|remind me|"
    r"wer|was|wann|wo|wie|wieso|warum|welche[rsnm]?|weisst|sag mir|qu[ei]|quien|cuando|donde|como|cual|dime|"
    r"quand|ou est|comment|quel(?:le)?s?|dis-moi|chi|cosa|quando|dove|come|quale|dimmi|kim|ne|nerede|hangi|nasil|"
    r"quem|onde|qual|谁|什么|哪|几)(?:\b|(?<=[^\x00-\x7f]))"
)
_REQUESTS = """
tell know again need please remind once more sagen sag weißt wissen möchte moechte brauche nochmal bitte kannst dime
decir puedes sabes necesito saber dire dis peux sais savoir voudrais besoin rappelle dimmi dirmi puoi sai sapere söyle
misin biliyor lütfen dizer diga sabe preciso podes 教えて 告诉 知道 请问"""
"""Words that askings have besides those asked for."""


def is_question(text: str) -> bool:
    """Whether the text ends or begins like a question, in the languages of most use."""
    folded = fold(text)
    return bool(_ASKS_AT_END.search(folded) or _ASKS_AT_BEGINNING.match(folded))


def is_asking(text: str, asked: Set[str]) -> bool:
    """Whether the text asks for these words and says hardly more: an earlier asking, which answers nothing."""
    words, requests = set(lexemes(text)), _requests()
    further = words - asked - requests
    if not is_question(text):
        return not (further or words.isdisjoint(requests))
    return 4 * len(further) <= len(words) and not any(map(str.isdigit, "".join(further)))


@cache
def _requests() -> frozenset[str]:
    return frozenset(lexemes(_REQUESTS))


@dataclass(frozen=True, slots=True)
class Days:
    """A time that a question names, from its first day to its last."""

    first: date
    last: date

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last


_MONTHS = (
    "january januar enero janvier gennaio ocak ocagi janeiro",
    "february februar febrero fevrier febbraio subat fevereiro",
    "march marz maerz marzo mars mart marco",
    "april abril avril aprile nisan",
    "may mai mayo maggio mayis maio",
    "june juni junio juin giugno haziran junho",
    "july juli julio juillet luglio temmuz julho",
    "august agosto aout agustos",
    "september septiembre setiembre septembre settembre eylul setembro",
    "october oktober octubre octobre ottobre ekim outubro",
    "november noviembre novembre kasim novembro",
    "december dezember diciembre decembre dicembre aralik araligi dezembro",
)
_WEEKDAYS = (
    "monday montag lunes lundi lunedi pazartesi segunda-feira 月曜 星期一 周一",
    "tuesday dienstag martes mardi martedi sali terca-feira 火曜 星期二 周二",
    "wednesday mittwoch miercoles mercredi mercoledi carsamba quarta-feira 水曜 星期三 周三",
    "thursday donnerstag jueves jeudi giovedi persembe quinta-feira 木曜 星期四 周四",
    "friday freitag viernes vendredi venerdi cuma sexta-feira 金曜 星期五 周五",
    "saturday samstag sonnabend sabado samedi sabato cumartesi 土曜 星期六 周六",
    "sunday sonntag domingo dimanche domenica pazar 日曜 星期日 星期天 周日",
)
_SEASONS = {
    3: "spring fruhling fruhjahr primavera printemps ilkbahar 春天 春",
    6: "summer sommer verano l'ete cet_ete l'estate quest'estate gecen_yaz verao 夏天 夏",
    9: "autumn last_fall the_fall herbst otono automne autunno sonbahar outono 秋天 秋",
    12: "winter invierno hiver inverno gecen_kis 冬天 冬",
}
"""By their first month, in the north."""
_DAYS_AGO = {
    0: "today heute hoy aujourd'hui oggi bugun hoje 今日 今天",
    1: "yesterday gestern ayer je_hier j'ai_hier ieri dun ontem 昨日 昨天",
    2: "vorgestern anteayer avant-hier avantieri anteontem 一昨日 前天",
}
_UNITS = {
    "day": "day tag dia jour giorno gun 日 天",
    "week": "week woche semana semaine settimana hafta 週 周 週間",
    "month": "month monat mes mois mese ay meses mesi か月 个月 月",
    "year": "year jahr ano annee an anno anni yil 年",
}
_NUMBERS = (
    "",
    "a an one ein eine einer einem un una une um uma bir",
    "two zwei dos deux due iki dois duas",
    "three drei tres trois tre uc",
    "four vier cuatro quatre quattro dort quatro",
    "five funf cinco cinq cinque bes",
)


def _by_word(rows: Iterable[tuple[int, str]]) -> dict[str, int]:
    return {word.replace("_", " "): value for value, words in rows for word in words.split()}


def _any(words: Iterable[str]) -> str:
    """One of the words, the longest first; only scripts with spaces have borders."""
    return "|".join(
        rf"\b{re.escape(word)}(?:s|e|n|en|es|i|de|da|te|ta|dan|den)?\b" if word[0] < "\u3000" else word
        for word in sorted(words, key=len, reverse=True)
    )


_MONTH_OF, _WEEKDAY_OF = _by_word(enumerate(_MONTHS, 1)), _by_word(enumerate(_WEEKDAYS))
_SEASON_OF, _AGO_OF, _NUMBER_OF = _by_word(_SEASONS.items()), _by_word(_DAYS_AGO.items()), _by_word(enumerate(_NUMBERS))
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_UNIT, _YEAR = f"({_any(_UNIT_OF)})", r"(?:,?\s+(?:de\s+|del\s+)?(20\d\d))?"
_LAST = (
    r"(?:last|past|previous|letzte\w?|vergangene\w?|vorige\w?|pasad[oa]|dernier\w?|scors[oa]|gecen|passad[oa]|ultim[oa]"
)
_LAST += "|[先上去昨]个?)"
_DATE = r"\b(20\d\d)-(\d\d)-(\d\d)\b|\b(\d{1,2})\.\s?(\d{1,2})\.(?:\s?(20\d\d))?|(?:(20\d\d)年)?(\d{1,2})月(\d{1,2})日"
_MONTH = (
    rf"(?:\b(\d{{1,2}})(?:st|nd|rd|th|\.|er)?\s+(?:of\s+|de\s+)?)?({_any(_MONTH_OF)})(?:\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!:))?{_YEAR}"
    r"|(?:(20\d\d)年)?(\d{1,2})月(?!\d)"
)
_SEASON = rf"({_any(_SEASON_OF)}){_YEAR}"
_WEEKDAY, _DAY_WORD = _any(_WEEKDAY_OF), _any(_AGO_OF)
_LAST_UNIT = rf"{_LAST}\s*{_UNIT}|{_UNIT}\s+{_LAST}"
_COUNT = rf"(\d{{1,3}}|{_any(_NUMBER_OF)})\s*{_UNIT}"
_AGO = rf"{_COUNT}\s*(?:ago|fa|once|atras|前)|(?:vor|hace|il y a|ha)\s+{_COUNT}"
_WHOLE_YEAR = r"\b(?:in|im jahr|en|nel|em|during)\s+(20\d\d)\b"
_SPREAD = {"day": 0, "week": 3, "month": 15, "year": 60}


_compiled = cache(re.compile)
"""At the first use: all patterns take 40 ms, for which a start shouldn't wait."""


def _matches(pattern: str, text: str) -> Iterator[re.Match[str]]:
    return _compiled(pattern).finditer(text)


def days_asked(text: str, today: date) -> list[Days]:
    """The times that a question names, in the languages of most use; without a year the latest ones up to today."""
    folded = fold(text)
    found = [_of_date(match, today) for match in _matches(_DATE, folded)]
    found += [_of_month(match, today) for match in _matches(_MONTH, folded) if _is_month(match[2], text)]
    found += [_of_season(match, today) for match in _matches(_SEASON, folded)]
    found += [_weekday(_value(_WEEKDAY_OF, match[0]), today) for match in _matches(_WEEKDAY, folded)]
    found += [_around(today - timedelta(_value(_AGO_OF, match[0])), 0) for match in _matches(_DAY_WORD, folded)]
    found += [_last_unit(match[1] or match[2], today) for match in _matches(_LAST_UNIT, folded)]
    found += [_ago(match[1] or match[3], match[2] or match[4], today) for match in _matches(_AGO, folded)]
    found += [Days(date(int(match[1]), 1, 1), date(int(match[1]), 12, 31)) for match in _matches(_WHOLE_YEAR, folded)]
    return [days for days in found if days is not None]


def _value(table: dict[str, Value], word: str) -> Value:
    """Of the longest entry that the word begins with."""
    return table[max((key for key in table if word.startswith(key)), key=len)]


def _of_date(match: re.Match[str], today: date) -> Days | None:
    iso, dotted, eastern = match.group(1, 2, 3), match.group(6, 5, 4), match.group(7, 8, 9)
    year, month, day = next(group for group in (iso, dotted, eastern) if group[2])
    return _around(_latest(today, int(month), int(day), year), 1)


def _of_month(match: re.Match[str], today: date) -> Days | None:
    before, word, after, year, eastern_year, eastern = match.groups()
    month, named = int(eastern) if eastern else _value(_MONTH_OF, word), year or eastern_year
    if before or after:
        return _around(_latest(today, month, int(before or after), named), 1)
    return _span(_latest(today, month, 1, named), 1)


def _is_month(word: str | None, text: str) -> bool:
    """Not the verb "may", nor the sauce; nor is "martes" in "mart"."""
    return word != "martes" and (
        word not in ("may", "mayo") or re.search(r"\bMay\b(?! I\b)|\b(?:de|en) mayo\b", text) is not None
    )


def _of_season(match: re.Match[str], today: date) -> Days | None:
    return _span(_latest(today, _value(_SEASON_OF, match[1]), 1, match[2]), 3)


def _latest(today: date, month: int, day: int, year: str | None) -> date | None:
    try:
        at = date(int(year or today.year), month, day)
        return at if year or at <= today else at.replace(year=at.year - 1)
    except ValueError:
        return None


def _around(at: date | None, days: int) -> Days | None:
    return None if at is None else Days(at - timedelta(days), at + timedelta(days))


def _span(first: date | None, months: int) -> Days | None:
    """So many months, and the days beside them."""
    return None if first is None else Days(first - timedelta(1), first + timedelta(months * 30.5 + 1))


def _weekday(weekday: int, today: date) -> Days:
    at = today - timedelta((today.weekday() - weekday - 1) % 7 + 1)
    return Days(at, at)


def _last_unit(word: str, today: date) -> Days | None:
    match _value(_UNIT_OF, word):
        case "week":
            monday = today - timedelta(today.weekday() + 7)
            return Days(monday, monday + timedelta(6))
        case "month":
            last = today.replace(day=1) - timedelta(1)
            return Days(last.replace(day=1), last)
        case "year":
            return Days(date(today.year - 1, 1, 1), date(today.year - 1, 12, 31))
        case _:
            return None


def _ago(count: str, word: str, today: date) -> Days | None:
    unit = _value(_UNIT_OF, word)
    number = int(count) if count.isdigit() else _value(_NUMBER_OF, count)
    days = number * {"day": 1, "week": 7, "month": 30, "year": 365}[unit]
    return _around(today - timedelta(days), _SPREAD[unit]) if days < today.toordinal() - 100 else None
