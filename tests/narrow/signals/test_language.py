"""Which language carries a request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.narrow.signals.reader import detect_language
from tests.kit.tables import table
from tests.requirements import proves


@proves("D2")
@table(
    ("text", "language"),
    [
        ("What is the weather in London?", "en"),
        ("weather london", "en"),
        ("מה מזג האוויר בלונדון?", "he"),
        ("¿Qué tiempo hace en Madrid para mañana?", "es"),
        ("Trouve les fichiers modifiés dans le dossier", "fr"),
        ("Zeige mir bitte die offenen Tickets von gestern", "de"),
        ("Mostre os arquivos que eu alterei na pasta", "pt"),
        ("Trova i file che sono nella cartella", "it"),
        ("Zoek de bestanden die ik in de map heb gezet", "nl"),
        ("帮我查一下明天北京的天气", "zh"),
        ("明日の東京の天気を教えてください", "ja"),
        ("내일 서울 날씨 알려줘", "ko"),
        ("ما هو الطقس غدا في القاهرة", "ar"),
        ("هوای تهران چگونه است", "fa"),
        ("Какая погода завтра в Москве", "ru"),
        ("Яка погода завтра в Києві", "uk"),
        ("Τι καιρό κάνει στην Αθήνα", "el"),
    ],
)
def test_a_sentence_is_told_by_its_script_and_its_little_words(text: str, language: str) -> None:
    assert detect_language(text) == language


@proves("D2")
@table(
    ("text", "language"),
    [
        ("תחפש ב-Hugging Face Transformers models של Google Research", "he"),
        ("תפתח pull request ב-github.com/acme/shop על הקובץ src/app/main.py", "he"),
        ('תשלח ל-dan@example.com את "Quarterly Report Final Version for the Board"', "he"),
        ("What does the Hebrew word שלום mean?", "en"),
        ("Translate 'מה שלומך היום בבוקר הזה' to English", "en"),
        ("create an event בשם פגישה in my calendar for the team", "en"),
        ("用 GitHub 搜索 issue tracker", "zh"),
    ],
)
def test_names_paths_and_quotations_do_not_change_the_language_of_a_request(text: str, language: str) -> None:
    assert detect_language(text) == language


@table("text", ["", "   ", "12345 + 678", "👍🎉", "?!…", "\u200f\u200e"])
def test_a_text_without_letters_has_no_language(text: str) -> None:
    assert detect_language(text) == "und"


def test_a_lone_quotation_is_judged_by_what_it_says() -> None:
    assert detect_language('"שלום עולם"') == "he"


@given(st.text(max_size=400))
def test_any_text_has_some_language(text: str) -> None:
    assert detect_language(text)


def test_a_megabyte_is_judged_by_its_beginning() -> None:
    assert detect_language("תמצא את הקובץ " * 80_000) == "he"
    assert detect_language("a/" * 500_000) == "en"
