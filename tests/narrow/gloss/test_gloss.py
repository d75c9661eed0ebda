"""Hebrew requests in English words."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.narrow.gloss.gloss import SoundIndex, gloss_words, join_gloss
from fingerpost.narrow.gloss.hebrew import (
    LEXICON_FIELDS,
    PREFIXES,
    fold_word,
    generate_noun_forms,
    generate_verb_forms,
    get_lexicon,
    is_hebrew,
    read_field_lines,
)
from tests.kit.tables import table
from tests.requirements import proves


def english(text: str) -> set[str]:
    return set(join_gloss(gloss_words(text)).split())


@proves("D2")
@table(
    ("request_", "expected"),
    [
        ("תשלח מייל לדנה עם הקובץ המצורף", "send email attachment"),
        ("תמצאי לי את כל הקבצים בתיקייה", "find all file folder"),
        ("אפשר לפתוח בקשת משיכה במאגר?", "open pull request repository"),
        ("תקבע לי פגישה מחר בשעה 10", "schedule meeting tomorrow 10"),
        ("כמה עולה כרטיס טיסה לברלין?", "price flight ticket berlin"),
        ("תריץ את הבדיקות בפייתון", "run test python"),
        ("מה תחזית מזג האוויר לסוף השבוע?", "weather forecast weekend"),
        ("תחשבי את סטיית התקן של המספרים", "calculate standard deviation number"),
        ("נמחק את הטבלה ממסד הנתונים", "delete table database"),
        ("תזכיר לי לשלם את החשבונית", "remind pay invoice"),
        ("אילו תופעות לוואי יש לתרופה?", "which side effects drug"),
        ("תתרגם את המסמך לצרפתית", "translate document french"),
        ("תוריד את הסרטון מיוטיוב", "download videos youtube"),
        ("תצלם מסך של האתר", "website screenshot"),
        ("תמזג את הענף לענף הראשי", "merge branch main"),
        ("תראה לי את הלוגים של הקונטיינר", "show log container"),
        ("תשדרגו את השרתים", "upgrade servers"),
    ],
)
def test_a_request_becomes_the_english_words_a_tool_text_would_use(request_: str, expected: str) -> None:
    assert set(expected.split()) <= english(request_)


@proves("D2")
def test_the_gloss_reads_like_a_telegram_in_the_order_of_the_request() -> None:
    assert join_gloss(gloss_words("תמיר 100 מעלות פרנהייט לצלזיוס")).startswith("convert 100 degrees")


def test_each_word_comes_with_its_english_and_words_that_say_nothing_with_none() -> None:
    assert gloss_words("את הקובץ") == (("את", ()), ("הקובץ", ("file",)))


def test_latin_words_and_numbers_pass_as_they_are() -> None:
    assert join_gloss(gloss_words("תחפש ב-GitHub את issue 42")) == "search find GitHub issue 42"


def test_a_hebrew_plural_of_a_latin_word_is_not_a_word_of_its_own() -> None:
    assert join_gloss(gloss_words("PRים פתוחים")) == "PR open"


@table("text", ["מזג אוויר", "מזג האוויר", "במזג האוויר", "ומזג אוויר", "מֶזֶג אֲוִויר", "מזג-האוויר"])
def test_an_idiom_is_found_with_article_prefix_hyphen_and_points(text: str) -> None:
    assert english(text) == {"weather"}


def test_an_idiom_is_found_in_the_plural_too() -> None:
    assert {"pull", "request"} <= english("כל בקשות המשיכה הפתוחות")


def test_the_words_of_an_idiom_apart_mean_what_they_mean() -> None:
    assert "convert" not in english("מה זה פגישה")
    assert "long" not in english("כמה אנשים הגיעו בזמן")


@table(
    ("one", "other"),
    [("תוכנית", "תכנית"), ("טלגרם", "תלגרם"), ("תיקייה", "תיקיה"), ("דו״ח", 'דו"ח'), ("צ׳אט", "צ'אט")],
)
def test_other_spellings_of_a_word_mean_the_same(one: str, other: str) -> None:
    assert set() < english(one) <= english(other)


def test_an_owner_at_the_end_of_a_word_is_seen_through() -> None:
    assert "account" in english("חשבונך")
    assert "message" in english("הודעותיה")


def test_a_question_that_names_two_units_asks_for_a_conversion() -> None:
    assert "convert" in english("כמה קילומטרים הם 3 מייל?")
    assert "convert" not in english("כמה קילומטרים יש עד אילת?")


def test_of_two_idioms_with_the_same_words_the_first_in_the_lexicon_counts() -> None:
    assert join_gloss(gloss_words("הערכים התזונתיים")) == "nutrition value"


@proves("D2")
@table(
    ("hebrew", "name"),
    [("סטרייפ", "stripe"), ("גרפנה", "grafana"), ("קיבאנה", "kibana"), ("נטליפיי", "netlify")],
)
def test_a_foreign_name_in_hebrew_letters_sounds_like_its_latin_one(hebrew: str, name: str) -> None:
    assert SoundIndex([name, "unrelated"]).find_similar(fold_word(hebrew)) == (name,)


def test_a_brand_with_silent_letters_is_in_the_lexicon() -> None:
    assert english("פלייריט") == {"playwright"}


def test_an_unknown_word_is_matched_by_sound_only_to_names_the_catalog_has() -> None:
    assert join_gloss(gloss_words("בקיבאנה")) == ""
    assert join_gloss(gloss_words("בקיבאנה", SoundIndex(["kibana"]))) == "kibana"


def test_two_consonants_are_enough_for_a_brand_only() -> None:
    assert SoundIndex(["okta"]).find_similar(fold_word("אוקטה")) == ()
    assert SoundIndex(brands=["okta"]).find_similar(fold_word("אוקטה")) == ("okta",)


def test_a_name_that_begins_otherwise_is_not_taken() -> None:
    assert SoundIndex(["Apollon"]).find_similar("פולן") == ()


def _lines() -> list[str]:
    return [line for field in LEXICON_FIELDS for line in read_field_lines(field)]


@table("field", LEXICON_FIELDS)
def test_every_line_of_the_lexicon_has_hebrew_first_and_english_after(field: str) -> None:
    for line in read_field_lines(field):
        kinds = [is_hebrew(word) for word in line.lstrip("*=").split()]
        assert kinds and kinds[0] and kinds == sorted(kinds, reverse=True), line


def test_the_lexicon_is_as_big_as_promised() -> None:
    assert len({word for line in _lines() for word in line.split() if is_hebrew(word)}) > 4_500


_NOUNS = [
    line.split()[0]
    for line in _lines()
    if line[0] not in "*=" and "_" not in line.split()[0] and len(line.split()) > 1
]
_VERBS = [line.split()[0][1:] for line in _lines() if line[0] == "*"]


@pytest.mark.slow
def test_any_form_of_a_noun_with_any_prefix_leads_back_to_it() -> None:
    prefixes = cycle(["", *sorted(PREFIXES)])  # one for each form: all with all take 15 seconds
    lost: list[str] = []
    for noun in _NOUNS:
        wanted = {reading.entry for reading in get_lexicon().look_up(fold_word(noun)) if reading.cost == 0}
        for form, _ in generate_noun_forms(fold_word(noun)):
            word = next(prefixes) + form
            if wanted.isdisjoint(reading.entry for reading in get_lexicon().look_up(fold_word(word))):
                lost.append(f"{noun}: {word}")
    assert not lost


@given(st.sampled_from(_VERBS), st.sampled_from(["", "ו", "ש", "כש", "וש"]), st.data())
@settings(deadline=None)
def test_any_form_of_a_verb_leads_back_to_it(verb: str, prefix: str, data: st.DataObject) -> None:
    past = verb.translate(str.maketrans("ךםןףץ", "כמנפצ", "'"))
    form, _ = data.draw(st.sampled_from(list(generate_verb_forms(past))))
    meanings = {word for line in _lines() if line.startswith(f"*{verb} ") for word in line.split()[1:]}
    found = {
        word for reading in get_lexicon().look_up(fold_word(prefix + form)) for word in reading.entry.english
    }
    assert meanings & found


@table(
    ("past", "forms"),
    [
        ("שלח", "תשלח תשלחי תשלחו נשלח לשלוח שלחו שולחת שליחה שלחתי"),
        ("כתב", "תכתוב כתוב לכתוב כתיבה כותבים"),
        ("קנה", "תקנה תקני לקנות קונה קניתי"),
        ("חיפש", "תחפש חפש לחפש מחפש חיפוש חיפשתי"),
        ("שינה", "תשנה שנה לשנות משנה שינוי"),
        ("תרגמ", "תתרגם תרגם לתרגם מתרגמת תרגום מתורגם"),
        ("הדפיס", "תדפיס הדפס להדפיס מדפיס הדפסה הדפסתי"),
        ("הוסיפ", "תוסיף הוסף להוסיף מוסיף הוספה"),
        ("הראה", "תראה תראי להראות מראה"),
        ("התקשר", "תתקשר התקשר להתקשר מתקשר התקשרות"),
        ("נרשמ", "תירשם להירשם הירשם נרשמתי"),
        ("ירד", "תרד לרדת יורד"),
    ],
)
def test_each_verb_pattern_makes_the_forms_people_use(past: str, forms: str) -> None:
    made = {form for form, _ in generate_verb_forms(past)}
    assert {fold_word(form) for form in forms.split()} <= made


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
@settings(deadline=None)
def test_any_text_can_be_glossed_and_every_word_stands_in_it(text: str) -> None:
    for word, _ in gloss_words(text):
        assert all(part in text for part in word.split(" "))


@given(st.text(alphabet="אבגדהוזחטיכלמנסעפצקרשתםןץףך \"'׳״-", max_size=400))
@settings(deadline=None)
def test_hebrew_junk_is_glossed_in_peace(text: str) -> None:
    assert join_gloss(gloss_words(text)) == join_gloss(gloss_words(text))
