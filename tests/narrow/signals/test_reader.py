"""What is read off a request: intents, urgency, names and things."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog.words import CATEGORY_NAMES
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import EntityKind, Signals, ToolCard
from tests.kit.catalogs import catalog, create_listing, tool
from tests.requirements import proves

SERVERS = {
    "github-mcp-server": ("list_issues", "create_pull_request"),
    "stripe": ("create_refund",),
    "playwright": ("browser_click",),
    "google_maps": ("maps_directions",),
    "time": ("get_current_time",),
    "fetch": ("fetch",),
    "memory": ("search_nodes",),
    "linear": ("create_issue",),
    "kibana": ("searchLogs",),
}


def cards(**servers: tuple[str, ...]) -> tuple[ToolCard, ...]:
    return catalog(
        *(create_listing(server, *map(tool, names)) for server, names in servers.items())
    ).snapshot.cards


@pytest.fixture(scope="module")
def reader() -> SignalReader:
    made = SignalReader()
    made.prepare(cards(**SERVERS))
    return made


def list_entities(signals: Signals, kind: EntityKind) -> list[str]:
    return [entity.text for entity in signals.entities if entity.kind is kind]


def list_mentions(signals: Signals) -> set[str]:
    return {mention.name for mention in signals.mentions}


@proves("D2")
@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("move the old reports into the archive folder", "files"),
        ("תעביר את הקבצים לתיקייה אחרת", "files"),
        ("open a pull request for my branch", "code"),
        ("תפתח בקשת משיכה מהענף שלי", "code"),
        ("restart the docker container and show me the logs", "system"),
        ("תפעיל מחדש את הקונטיינר בשרת", "system"),
        ("search the web for the latest news on fusion", "web_search"),
        ("תחפש באינטרנט חדשות על היתוך", "web_search"),
        ("take a screenshot of https://example.com", "web_page"),
        ("תצלם את האתר בדפדפן", "web_page"),
        ("how many rows does the orders table have", "data"),
        ("כמה שורות יש בטבלה במסד הנתונים", "data"),
        ("reply to Dana's email", "communication"),
        ("תשלח הודעה לערוץ בסלאק", "communication"),
        ("am I free on Friday? set up a meeting", "planning"),
        ("תקבע לי פגישה ביומן", "planning"),
        ("what is in my notes about the knowledge graph", "knowledge"),
        ("תוסיף הערה לבסיס הידע", "knowledge"),
        ("play a song by Queen", "media"),
        ("תשמיע שיר מהאלבום החדש", "media"),
        ("refund the customer's last payment", "commerce"),
        ("מה מחיר המניה של אפל", "commerce"),
        ("what's the weather forecast near me", "time_place"),
        ("מה מזג האוויר מחר בחיפה", "time_place"),
    ],
)
def test_a_request_is_about_one_of_the_twelve_categories_in_both_languages(
    reader: SignalReader, text: str, category: str
) -> None:
    best = reader.read(text).intents[0]
    assert best.category == category
    assert best.words
    assert 0 < best.score <= 1


def test_more_words_for_a_category_score_higher_and_say_which_they_were(reader: SignalReader) -> None:
    one, more = (reader.read(text).intents[0] for text in ("a folder", "a folder with zip files"))
    assert more.score > one.score
    assert "folder" in more.words


def test_small_talk_is_about_nothing(reader: SignalReader) -> None:
    assert reader.read("hello there").intents == ()
    assert reader.read("מה שלומך").intents == ()


@proves("D2", "D3")
@pytest.mark.parametrize(
    "text",
    [
        "URGENT: the site is down",
        "I need this asap",
        "please do it right away",
        "send it as soon as possible",
        "I need the report right now",
        "דחוף! השרת נפל",
        "תשלח את זה מיד",
        "אני צריך את זה כמה שיותר מהר",
        "בבקשה בהקדם האפשרי",
    ],
)
def test_urgency_is_heard_in_both_languages(reader: SignalReader, text: str) -> None:
    assert reader.read(text).urgent


@proves("D2")
@pytest.mark.parametrize(
    "text",
    [
        "find an urgent care clinic nearby",
        "list all urgent tickets",
        "show the issues marked as urgent",
        "no rush, whenever you can",
        "it's not urgent",
        "what is the weather right now?",
        "the commit immediately before the release",
        "זה לא דחוף",
        "איפה יש מוקד לרפואה דחופה?",
        "מה קורה מיד אחרי המבחן",
        "find the file",
    ],
)
def test_the_word_urgent_alone_sets_no_urgency(reader: SignalReader, text: str) -> None:
    assert not reader.read(text).urgent


@proves("D3")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("use github to find the bug", {"github-mcp-server"}),
        ("Open it with Playwright.", {"playwright"}),
        ("how far is it by google maps?", {"google_maps"}),
        ("call list_issues for this repo", {"github-mcp-server/list_issues"}),
        ("run github-mcp-server/create_pull_request", {"github-mcp-server/create_pull_request"}),
        ("stripe.create_refund for order 5", {"stripe/create_refund"}),
        ("please use searchLogs", {"kibana/searchLogs"}),
        ("use the time server", {"time"}),
        ("ask the memory tool what I like", {"memory"}),
        ("using fetch, read the page", {"fetch", "fetch/fetch"}),
        ("run `fetch` on it", {"fetch", "fetch/fetch"}),
        ("put it in Linear please", {"linear"}),
        ("תחייב את הלקוח בעזרת סטרייפ", {"stripe"}),
        ("תחפש בגיטהאב את הבאג", {"github-mcp-server"}),
        ("תראה את הלוגים בקיבאנה", {"kibana"}),
        ("תשתמש בשרת הזמן", {"time"}),
    ],
)
def test_a_tool_or_server_named_outright_is_a_mention(
    reader: SignalReader, text: str, names: set[str]
) -> None:
    assert list_mentions(reader.read(text)) == names


@proves("D3")
@pytest.mark.parametrize(
    "text",
    [
        "what time is it",
        "fetch the page for me",
        "how much memory does it use",
        "a linear regression of the data",
        "Linear regression of the data",
        "use time zones in the report",
        "my githubby thing",
        "stripes on the shirt",
        "see github_backup.txt",
        "כמה זמן זה לוקח",
    ],
)
def test_an_ordinary_word_or_a_part_of_one_is_no_mention(reader: SignalReader, text: str) -> None:
    assert list_mentions(reader.read(text)) == set()


def test_a_mention_says_which_words_name_it(reader: SignalReader) -> None:
    (mention,) = reader.read("look at GitHub").mentions
    assert (mention.kind, mention.text) == ("server", "GitHub")


def test_when_the_tools_change_so_do_the_names() -> None:
    reader = SignalReader()
    assert reader.read("use grafana").mentions == ()
    reader.prepare(cards(grafana=("query",)))
    assert list_mentions(reader.read("use grafana")) == {"grafana"}
    reader.prepare(())
    assert reader.read("use grafana").mentions == ()


@proves("D2")
@pytest.mark.parametrize(
    ("text", "kind", "things"),
    [
        ("read /etc/hosts and ~/notes/a.md", EntityKind.PATH, ["/etc/hosts", "~/notes/a.md"]),
        (r"open C:\Users\me\a.txt now", EntityKind.PATH, [r"C:\Users\me\a.txt"]),
        (
            "see ./src/app.py, ../x/y and report.pdf.",
            EntityKind.PATH,
            ["./src/app.py", "../x/y", "report.pdf"],
        ),
        ("תפתח את ב-main.py ואת דוח.xlsx", EntityKind.PATH, ["main.py", "דוח.xlsx"]),
        (
            "go to https://a.example/x?y=1, then example.com.",
            EntityKind.URL,
            ["https://a.example/x?y=1", "example.com"],
        ),
        ("mail dan.k+x@mail.example.org today", EntityKind.EMAIL, ["dan.k+x@mail.example.org"]),
        ("שלח ל-dan@example.com", EntityKind.EMAIL, ["dan@example.com"]),
        ("from 2024-03-01 to 5.4.2024", EntityKind.DATE, ["2024-03-01", "5.4.2024"]),
        ("on March 5th, 2024 or 3 May", EntityKind.DATE, ["March 5th, 2024", "3 May"]),
        ("tomorrow or next Friday or in 3 days", EntityKind.DATE, ["tomorrow", "next Friday", "in 3 days"]),
        ("מחר, ביום שלישי הבא ובשבוע הבא", EntityKind.DATE, ["מחר", "יום שלישי הבא", "שבוע הבא"]),
        ("ב-5 במרץ 2024 או למחרתיים", EntityKind.DATE, ["5 במרץ 2024", "מחרתיים"]),
        ("at 17:30 or 9 am", EntityKind.TIME, ["17:30", "9 am"]),
        ("בשעה 10 או 8 בבוקר", EntityKind.TIME, ["בשעה 10", "8 בבוקר"]),
        ("close PROJ-123 and #42", EntityKind.ID, ["PROJ-123", "#42"]),
        (
            "row 123e4567-e89b-12d3-a456-426614174000 of commit 9fceb02d",
            EntityKind.ID,
            ["123e4567-e89b-12d3-a456-426614174000", "9fceb02d"],
        ),
        ("customer cus_9s6XKzkNRiz8i3, sale 7AB123", EntityKind.ID, ["cus_9s6XKzkNRiz8i3", "7AB123"]),
        ("100 km and $20 and 5%", EntityKind.NUMBER, ["100 km", "$20", "5%"]),
        ('178 ס"מ, 82 קילו ו-1,500 שקלים', EntityKind.NUMBER, ['178 ס"מ', "82 קילו", "1,500 שקלים"]),
        ("call it \"My List\" or 'b c' or `x`", EntityKind.QUOTED, ["My List", "b c", "x"]),
    ],
)
def test_the_things_a_tool_would_take_are_found_as_they_stand(
    reader: SignalReader, text: str, kind: EntityKind, things: list[str]
) -> None:
    assert list_entities(reader.read(text), kind) == things


@pytest.mark.parametrize(
    "text", ["and/or", "he said it's Dana's", "Node.js is fine", "TODO and HTML", "read/write"]
)
def test_ordinary_writing_holds_no_things(reader: SignalReader, text: str) -> None:
    assert reader.read(text).entities == ()


def test_a_gloss_is_given_for_hebrew_only(reader: SignalReader) -> None:
    assert reader.read("תמצא את הקובץ").gloss == "find search file"
    assert reader.read("find the file").gloss == ""
    assert reader.read("what does שלום mean in the song").gloss == ""


def test_what_is_wanted_at_the_end_of_a_long_text_is_heard(reader: SignalReader) -> None:
    signals = reader.read("lorem ipsum " * 5_000 + "mail it to dan@example.com with github asap")
    assert signals.urgent
    assert list_entities(signals, EntityKind.EMAIL) == ["dan@example.com"]
    assert list_mentions(signals) == {"github-mcp-server"}


@given(st.text(max_size=500))
def test_any_text_is_read_and_whatever_is_found_stands_in_it(reader: SignalReader, text: str) -> None:
    signals = reader.read(text)
    assert all(entity.text and entity.text in text for entity in signals.entities)
    assert all(mention.text in text for mention in signals.mentions)
    assert {match.category for match in signals.intents} <= set(CATEGORY_NAMES)
    assert all(0 < match.score <= 1 for match in signals.intents)


PIECES = [
    "a",
    "-",
    ".",
    "/",
    "\\",
    "@",
    "#",
    "0",
    "א",
    '"',
    "'",
    "`",
    " ",
    "_",
    ":",
    "urgent ",
    "in ",
    "use ",
    "~",
    "1,",
    "é",
    "👍",
]


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), st.lists(st.sampled_from(PIECES), max_size=3)
)
def test_long_junk_is_read_without_getting_stuck(
    reader: SignalReader, piece: list[str], end: list[str]
) -> None:
    """They begin many patterns and finish none; the suite's own time-out is the bound."""
    text = ("".join(piece) * 200_000)[:200_000] + "".join(end)
    assert reader.read(text).language


def test_reading_the_same_text_twice_says_the_same(reader: SignalReader) -> None:
    text = "use github: 3 open PRs by tomorrow, דחוף"
    assert reader.read(text) == reader.read(text)


async def test_a_first_hebrew_request_may_come_on_the_event_loop() -> None:
    assert SignalReader().read("תמצא את הקובץ").language == "he"


@proves("D2", "D3")
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("municipal datasets about trees", True),
        ("population by town from the census bureau", True),
        ("נתוני משרד הבריאות על בתי חולים", True),
        ('כמה תושבים יש בעכו לפי הלמ"ס', True),
        ("open the official website of the band", False),
        ("the official documentation of pandas", False),
        ("open data.csv and sum the numbers", False),
        ("latest news about the government", False),
        ("update the customer records in the database", False),
        ("תפתח את מאגר המידע של הלקוחות", False),
    ],
)
def test_official_data_is_an_intent_where_a_publisher_or_official_data_is_named(
    reader: SignalReader, text: str, meant: bool
) -> None:
    assert ("official_data" in {intent.category for intent in reader.read(text).intents}) is meant
