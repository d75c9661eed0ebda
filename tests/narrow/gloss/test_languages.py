"""Requests in twelve further languages in English words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.narrow.gloss.gloss import TABLE_LANGUAGES, fold_spelling, translate_request
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import NeedVerdict
from tests.kit.narrowing import list_offered, narrow, settings_of, tool
from tests.kit.tables import table
from tests.requirements import proves

OFFICE = {
    "calendar": [
        tool("create_event", "Create an event or meeting in the calendar.", "title", "start"),
        tool("list_events", "List the events of a day or week in the calendar.", "day"),
        tool("delete_event", "Delete an event from the calendar.", "event_id"),
    ],
    "weather": [tool("get_forecast", "The weather forecast for a city: rain, temperature, wind.", "city")],
    "mail": [tool("send_email", "Send an email message to somebody.", "to", "subject", "body")],
    "invoices": [tool("search_invoices", "Search invoices by customer or date.", "query")],
}


@pytest.mark.slow
@proves("Q7")
@table(
    ("language", "request_", "first"),
    [
        ("es", "¿Qué tiempo hará mañana en Sevilla?", "weather/get_forecast"),
        ("fr", "Envoie un courriel à Paul", "mail/send_email"),
        ("pt", "Procura as faturas do cliente Souza", "invoices/search_invoices"),
        ("de", "Wie wird das Wetter morgen in Köln?", "weather/get_forecast"),
        ("id", "Kirim email ke Budi", "mail/send_email"),
        ("ru", "Найди счета клиента Иванова", "invoices/search_invoices"),
        ("ar", "أرسل رسالة بريد إلكتروني إلى سارة", "mail/send_email"),
        ("ur", "کل لاہور کا موسم کیسا ہوگا؟", "weather/get_forecast"),
        ("hi", "रवि को ईमेल भेजो", "mail/send_email"),
        ("bn", "আগামীকাল ঢাকার আবহাওয়া কেমন হবে?", "weather/get_forecast"),
        ("zh", "明天上海的天气怎么样？", "weather/get_forecast"),
        ("ja", "田中さんにメールを送って", "mail/send_email"),
    ],
)
def test_a_request_in_another_language_finds_a_tool_described_in_english(
    language: str, request_: str, first: str
) -> None:
    narrowing = narrow(request_, OFFICE, settings_of(flags={"dense_scores": False}))
    assert narrowing.signals.language == language
    assert list_offered(narrowing)[0] == first
    assert narrowing.need.verdict is not NeedVerdict.NONE


@proves("Q7")
@table(
    ("language", "request_", "english"),
    [
        ("es", "¿Puedes borrar el archivo a.txt?", "can you delete file a.txt?"),
        ("fr", "Renomme a.txt en b.txt et montre-moi le dossier", "rename a.txt in b.txt and show folder"),
        (
            "pt",
            "Quantos arquivos há na pasta e qual é o maior?",
            "how many file are there in folder and which",
        ),
        ("de", "Zeig mir die Umgebungsvariablen", "show me environment variables"),
        ("hi", "docs फ़ोल्डर में a.txt बनाओ", "create in docs folder a.txt"),
        ("zh", "把 a.txt 改名为 b.txt", "rename a.txt to b.txt"),
        ("ja", "a.txtを削除してください", "delete a.txt"),
        ("ar", "كم عدد الملفات في المجلد؟", "how many file in folder?"),
        ("bn", "২০২৫ সালের ফাইল দেখাও", "show 2025 year file"),
    ],
)
def test_instructions_and_question_words_come_first_and_names_stay_as_written(
    language: str, request_: str, english: str
) -> None:
    assert translate_request(request_, language).startswith(english)


@proves("Q7")
@table(
    ("request_", "asks"),
    [
        ("¿Qué archivos hay en la carpeta?", True),
        ("Borra el archivo a.txt", False),
        ("¿Podrías borrar el archivo a.txt?", False),
        ("ファイルを見せて", True),
        ("ファイルを削除して", False),
        ("数据库里有哪些表？", True),
        ("Удали файл a.txt", False),
        ("مجھے فائلیں دکھاؤ", True),
    ],
)
def test_the_mood_of_a_request_is_known(request_: str, asks: bool) -> None:
    assert SignalReader().read(request_).asks is asks


@proves("Q7")
@table(
    "request_",
    [
        "Hola, ¿qué tal?",
        "Vielen Dank!",
        "こんにちは",
        "Muito obrigado!",
        "谢谢",
        "Bonjour",
        "Спасибо!",
        "شكرًا",
    ],
)
def test_a_greeting_needs_no_tool(request_: str) -> None:
    narrowing = narrow(request_, OFFICE, settings_of(flags={"dense_scores": False}))
    assert narrowing.need.verdict is NeedVerdict.NONE


@proves("Q7")
@table(
    "request_",
    [
        "list the files in the folder",
        "Save invoice-204.docx as PDF.",
        "delete file in docs",
        "תראה לי את הקבצים",
        "trova tutti i file nella cartella",
    ],
)
def test_english_hebrew_and_languages_without_a_table_are_not_translated(request_: str) -> None:
    reader = SignalReader()
    gloss = reader.read(request_).gloss
    assert not gloss or reader.read(request_).language == "he"


@proves("Q7")
def test_tools_described_in_the_language_of_the_request_are_compared_as_they_are() -> None:
    chinese = {"天气": [tool("天气预报", "查询一个城市的天气预报。"), tool("发送邮件", "发送一封电子邮件。")]}
    narrowing = narrow("明天上海的天气怎么样？", chinese, settings_of(flags={"dense_scores": False}))
    assert narrowing.signals.gloss == ""
    assert list_offered(narrowing)[0] == "天气/天气预报"


def test_a_text_whose_words_are_unknown_is_not_translated() -> None:
    assert translate_request("Der Zwölfboxkämpfer jagt Viktor quer übers Sylter Watt", "de") == ""


@pytest.mark.slow
@given(text=st.text(max_size=200), language=st.sampled_from(sorted(TABLE_LANGUAGES)))
def test_any_text_can_be_translated(text: str, language: str) -> None:
    assert isinstance(translate_request(text, language), str)


@pytest.mark.slow
def test_a_long_text_of_any_kind_takes_no_longer_than_a_page_of_words() -> None:
    """Every pattern is bounded: no text makes the translation quadratic."""
    for text in ("-" * 4000, "a." * 2000, "1-" * 2000, "данных " * 600, "的" * 4000, "ال" * 2000):
        for language in ("es", "ru", "ar", "zh"):
            started = time.process_time()
            translate_request(text, language)
            assert time.process_time() - started < 5, (text[:4], language)


def test_spelling_variants_are_the_same_word() -> None:
    assert fold_spelling("फ़ाइल") == fold_spelling("फाइल")
    assert fold_spelling("أنشئ") == fold_spelling("انشئ")
    assert fold_spelling("Größe") == "grosse"
