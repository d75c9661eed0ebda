"""From a request to the few tools that are offered, through `Narrower`."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fingerpost.catalog import Snapshot
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.dense.encoder import get_shared_encoder
from fingerpost.narrow.features import Scores
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.scorer import ScorerRequest
from fingerpost.records import HiddenTool, Message, ServerChoice, ToolCard
from tests.kit.narrowing import candidate, list_offered, narrow, narrower_of, settings_of, snapshot_of, tool
from tests.kit.tables import table
from tests.requirements import proves

VERBS = ("read", "write", "move", "delete", "copy", "open", "close", "search", "edit", "list")
OFFICE = {
    "calendar": [
        tool("create_event", "Put an event or appointment into the calendar.", "title", "start"),
        tool("list_events", "List the events of a day or week in the calendar.", "day"),
        tool("delete_event", "Delete an event from the calendar.", "event_id"),
    ],
    "travel": [
        tool("search_flights", "Search flights between two cities on a date.", "origin", "destination"),
        tool("search_hotels", "Search hotels in a city.", "city"),
        tool("book_train", "Book a train ticket.", "origin", "destination"),
    ],
    "weather": [tool("get_forecast", "The weather forecast for a city: rain, temperature, wind.", "city")],
    "mail": [
        tool("send_email", "Send an email message to somebody.", "to", "subject", "body"),
        tool("search_inbox", "Search messages in the inbox.", "query"),
    ],
}


@proves("D3", "N4")
def test_the_tool_that_suits_is_offered_first_and_its_score_adds_up() -> None:
    narrowing = narrow("What is the weather forecast for Oslo tomorrow?", OFFICE)
    assert list_offered(narrowing)[0] == "weather/get_forecast"
    for one in narrowing.shortlist.candidates:
        assert math.isclose(one.score, sum(part.points for part in one.parts), abs_tol=0.002), one
        assert one.offered != bool(one.lost)


@proves("D4")
@pytest.mark.parametrize("most", [1, 2, 3])
def test_never_more_tools_are_offered_than_asked_for(most: int) -> None:
    text = "find a flight, a hotel and a train, then put everything in my calendar and send an email"
    assert len(list_offered(narrow(text, OFFICE, max_tools=most))) <= most
    by_settings = narrow(text, OFFICE, settings_of(narrow={"max_tools": most}))
    assert len(list_offered(by_settings)) <= most


@proves("D4")
def test_four_tools_are_the_most_by_default() -> None:
    many = {"s": [tool(f"search_flights_{number}", "Search flights.") for number in range(12)]}
    assert len(list_offered(narrow("search flights", many))) == 4


@proves("D3")
def test_a_request_with_one_clear_tool_gets_a_short_list() -> None:
    assert list_offered(narrow("What is the weather forecast?", OFFICE)) == ["weather/get_forecast"]


@proves("D3", "N3")
def test_every_need_of_a_request_gets_its_tool() -> None:
    narrowing = narrow("search flights from Rome to Oslo and put an event in my calendar", OFFICE)
    assert narrowing.shortlist.needs == ("search flights from Rome to Oslo", "put an event in my calendar")
    assert {"travel/search_flights", "calendar/create_event"} <= set(list_offered(narrowing))
    served = {candidate(narrowing, key).need for key in ("travel/search_flights", "calendar/create_event")}
    assert served == {0, 1}


@proves("D12")
def test_needs_are_not_taken_apart_when_the_flag_is_off() -> None:
    text = "search flights from Rome to Oslo and put an event in my calendar"
    assert narrow(text, OFFICE, settings_of(flags={"split_needs": False})).shortlist.needs == (text,)


@proves("D3")
def test_a_tool_or_a_server_named_outright_goes_first() -> None:
    copies = {
        "alpha": [tool("search_notes", "Search the notes.")],
        "zeta": [tool("search_notes_fast", "Search the notes.")],
    }
    named = narrow("search the notes with search_notes_fast", copies)
    assert list_offered(named)[0] == "zeta/search_notes_fast"
    assert any(part.signal == "mention" for part in candidate(named, "zeta/search_notes_fast").parts)
    by_server = narrow("search the notes using the zeta server", copies)
    assert list_offered(by_server)[0] == "zeta/search_notes_fast"


@proves("D3")
def test_of_two_tools_in_conflict_only_the_better_is_offered() -> None:
    settings = settings_of(tools=[{"match": "travel/search_flights", "conflicts": ["travel/book_train"]}])
    text = "search flights or book a train ticket from Rome to Milan"
    assert {"travel/search_flights", "travel/book_train"} <= set(list_offered(narrow(text, OFFICE)))
    narrowing = narrow(text, OFFICE, settings)
    chosen = {"travel/search_flights", "travel/book_train"} & set(list_offered(narrowing))
    assert len(chosen) == 1
    loser = ({"travel/search_flights", "travel/book_train"} - chosen).pop()
    assert candidate(narrowing, loser).lost.startswith(f"conflicts with {chosen.pop()}")


@proves("D3")
def test_of_the_same_tool_on_several_servers_one_is_offered_and_the_others_say_so() -> None:
    search = tool("web_search", "Search the web for pages.")
    narrowing = narrow("search the web for pages about owls", {"brave": [search], "exa": [search]})
    assert list_offered(narrowing) == ["brave/web_search"]
    assert candidate(narrowing, "exa/web_search").lost == "the same tool as brave/web_search on server brave"


@proves("D3")
def test_a_fallback_stands_behind_the_tool_it_stands_in_for() -> None:
    tools = {
        "main": [tool("lookup_word", "Look up the meaning, or definition, of a single word.")],
        "spare": [tool("define_word", "Look up the meaning or definition of a word.")],
    }
    text = "definition and meaning of the word owl"
    assert list_offered(narrow(text, tools))[0] == "spare/define_word"
    ordered = settings_of(tools=[{"match": "main/lookup_word", "hierarchy": ["spare/define_word"]}])
    assert list_offered(narrow(text, tools, ordered))[:2] == ["main/lookup_word", "spare/define_word"]


@proves("D3")
def test_urgency_counts_against_slow_tools_and_says_so() -> None:
    tools = {"a": [tool("quick_search", "Search pages.")], "b": [tool("deep_search", "Search pages.")]}
    slow = settings_of(tools=[{"match": "b/*", "typical_ms": 200_000}])
    calm = narrow("search pages about owls", tools, slow)
    urgent = narrow("URGENT, right now: search pages about owls", tools, slow)
    assert not [part for part in candidate(calm, "b/deep_search").parts if part.signal == "latency"]
    (latency,) = [part for part in candidate(urgent, "b/deep_search").parts if part.signal == "latency"]
    assert latency.points < 0
    assert "urgent" in latency.note


OFFICIAL = {
    "gov": [tool("datagov_query", "Query datasets.", "query")],
    "tavily": [tool("tavily-search", "Search the web for statistics, figures and data.", "query")],
    "perplexity": [tool("perplexity_search", "Search official data and statistics on the web.", "query")],
    "mail": [tool("send_email", "Send an email.", "to", "subject", "body")],
}


@pytest.mark.slow
@proves("D3")
@table(
    "text",
    [
        "official statistics on the population of Haifa",
        "How many cars are registered in Israel according to government data?",
        "find the unemployment rate on data.gov.il",
        "נתונים רשמיים על מספר התושבים בחיפה",
        "כמה כלי רכב רשומים לפי מאגר המידע הממשלתי?",
        "מה אומרת הלשכה המרכזית לסטטיסטיקה על מחירי הדיור",
    ],
)
def test_for_official_data_only_the_official_source_is_offered(text: str) -> None:
    narrowing = narrow(text, OFFICIAL)
    assert list_offered(narrowing) == ["gov/datagov_query"]
    lost = candidate(narrowing, "perplexity/perplexity_search").lost
    assert lost == "only gov/datagov_query is offered for official_data"


@proves("D3")
def test_a_request_without_the_exclusive_intent_costs_its_tool_nothing() -> None:
    narrowing = narrow("query datasets about owls", OFFICIAL)
    assert list_offered(narrowing)[0] == "gov/datagov_query"
    assert not [part for part in candidate(narrowing, "gov/datagov_query").parts if part.points < 0]


@proves("D3")
def test_others_are_offered_for_an_exclusive_intent_when_named_needed_or_its_server_is_down() -> None:
    named = narrow("use tavily-search to find official statistics on rents", OFFICIAL)
    assert list_offered(named)[0] == "tavily/tavily-search"
    two = narrow("Get the official statistics on rents, then send an email to dana@example.com", OFFICIAL)
    assert set(list_offered(two)) == {"gov/datagov_query", "mail/send_email"}
    down = narrow("official statistics on rents", OFFICIAL, health={"gov": "connection refused"})
    assert list_offered(down)[0] in ("tavily/tavily-search", "perplexity/perplexity_search")


@proves("D3")
def test_a_category_can_be_an_exclusive_intent_and_written_words_speak_for_it() -> None:
    tools = {
        "a": [tool("send_email", "Send an email message.")],
        "b": [tool("post_note", "Post a message to the board.")],
    }
    settings = settings_of(
        tools=[{"match": "b/*", "exclusive_intent": "communication", "keywords": ["bulletin"]}]
    )
    assert list_offered(narrow("send an email message", tools, settings)) == ["b/post_note"]
    assert list_offered(narrow("put owls on the bulletin", tools, settings)) == ["b/post_note"]


@proves("D3", "D1")
def test_priority_and_words_a_person_wrote_count() -> None:
    twins = {
        "alpha": [tool("find_left", "Find things.")],
        "omega": [tool("find_right", "Find things.")],
    }
    assert list_offered(narrow("find things", twins))[0] == "alpha/find_left"
    preferred = settings_of(tools=[{"match": "omega/*", "priority": 95}])
    assert list_offered(narrow("find things", twins, preferred))[0] == "omega/find_right"
    spoken = settings_of(tools=[{"match": "omega/*", "keywords": ["gadget"]}])
    assert list_offered(narrow("find the gadget things", twins, spoken))[0] == "omega/find_right"


@proves("D3")
def test_a_server_that_is_down_is_not_offered_and_the_reason_is_told() -> None:
    narrowing = narrow("weather forecast", OFFICE, health={"weather": "connection refused"})
    assert "weather/get_forecast" not in list_offered(narrowing)
    assert "connection refused" in candidate(narrowing, "weather/get_forecast").lost


@proves("E11", "D3", "N1")
def test_what_policy_hides_is_never_found_and_cannot_be_felt() -> None:
    hidden = {"weather/get_forecast": HiddenTool(tool="weather/get_forecast", rule="rule 1", reason="no")}
    narrowing = narrow("weather forecast for Oslo", OFFICE, hidden=hidden)
    assert "weather/get_forecast" not in [one.tool for one in narrowing.shortlist.candidates]
    assert narrowing.shortlist.hidden == tuple(hidden.values())
    about = narrow("weather forecast for Oslo", OFFICE, hidden=hidden, about="weather/get_forecast")
    assert "weather/get_forecast" not in [one.tool for one in about.shortlist.candidates]
    assert narrowing.shortlist.considered == 8


@proves("E11")
def test_a_scope_and_chosen_servers_bound_what_is_considered() -> None:
    scoped = narrow("weather forecast", OFFICE, allowed=frozenset({"mail/send_email", "gone/tool"}))
    assert [one.tool for one in scoped.shortlist.candidates] == ["mail/send_email"]
    chosen = narrow("weather forecast", OFFICE, servers=ServerChoice(servers=("travel",)))
    assert {one.tool.partition("/")[0] for one in chosen.shortlist.candidates} == {"travel"}
    off = narrow("weather forecast", OFFICE, servers=ServerChoice(servers=(), by="off"))
    assert off.shortlist.considered == 9


@proves("N1")
def test_servers_are_weighed_without_what_is_hidden() -> None:
    narrower = narrower_of(OFFICE)
    signals = narrower.read_signals("weather forecast for Oslo")
    weighed = narrower.score_servers(NarrowRequest(text="weather forecast for Oslo"), signals)
    assert max(weighed, key=lambda server: max(weighed[server])) == "weather"
    assert {server: len(scores) for server, scores in weighed.items()} == {
        server: len(tools) for server, tools in OFFICE.items()
    }
    hidden = {"weather/get_forecast": HiddenTool(tool="weather/get_forecast", rule="rule 1")}
    assert "weather" not in narrower.score_servers(
        NarrowRequest(text="weather forecast", hidden=hidden), signals
    )
    assert narrower.score_servers(NarrowRequest(text=""), signals) == {}


def test_a_request_that_leans_on_the_conversation_is_looked_for_with_it() -> None:
    history = (
        Message(role="user", text="What is the weather forecast for Oslo?"),
        Message(role="assistant", text="Rain."),
    )
    assert list_offered(narrow("and in Rome?", OFFICE, history=history))[0] == "weather/get_forecast"
    alone = narrow("send an email message to Dana about the inbox", OFFICE, history=history)
    assert list_offered(alone)[0] == "mail/send_email"


def test_the_tool_that_finds_a_missing_id_joins_and_says_why() -> None:
    tools = {
        "tracker": [
            tool("close_issue", "Close an issue.", "issue_id"),
            tool("search_issues", "Look for entries in the tracker.", "query"),
            tool("list_labels", "All labels."),
        ],
        "other": [tool("paint", "Paint a picture."), tool("sing", "Sing a song.")],
    }
    narrowing = narrow("close the issue about the broken login page", tools)
    assert list_offered(narrowing)[:2] == ["tracker/close_issue", "tracker/search_issues"]
    notes = [part.note for part in candidate(narrowing, "tracker/search_issues").parts]
    switched_off = narrow(
        "close the issue about the broken login page", tools, settings_of(flags={"producers": False})
    )
    if "tracker/search_issues" not in list_offered(switched_off):
        assert "finds the issue_id that close_issue needs" in notes
    known = narrow('close the issue "ABC-123"', tools)
    assert not [part for one in known.shortlist.candidates for part in one.parts if part.signal == "produces"]


@proves("D12")
def test_the_same_question_is_answered_from_memory_for_half_a_minute() -> None:
    now = 100.0
    settings = settings_of()
    narrower = Narrower(settings, parts=build_default_components(settings), clock=lambda: now)
    narrower.prepare(snapshot_of(OFFICE))
    request = NarrowRequest(text="weather forecast")
    first = narrower.narrow(request)
    assert not first.shortlist.cached
    again = narrower.narrow(request)
    assert again.shortlist.cached
    assert again.shortlist.candidates == first.shortlist.candidates
    now += 30
    assert not narrower.narrow(request).shortlist.cached


@proves("D12")
def test_a_changed_catalog_or_policy_is_never_answered_from_before() -> None:
    narrower = narrower_of(OFFICE)
    request = NarrowRequest(text="weather forecast")
    assert list_offered(narrower.narrow(request)) == ["weather/get_forecast"]
    hidden = {"weather/get_forecast": HiddenTool(tool="weather/get_forecast", rule="rule 1")}
    assert "weather/get_forecast" not in list_offered(
        narrower.narrow(NarrowRequest(text="weather forecast", hidden=hidden))
    )
    narrower.prepare(snapshot_of({"mail": OFFICE["mail"]}))
    assert not narrower.narrow(request).shortlist.cached
    assert all(one.tool.startswith("mail/") for one in narrower.narrow(request).shortlist.candidates)
    narrower.clear_cache()
    assert not narrower.narrow(request).shortlist.cached


@proves("D12")
def test_nothing_is_remembered_when_the_flag_is_off() -> None:
    narrower = narrower_of(OFFICE, settings_of(flags={"narrow_cache": False}))
    request = NarrowRequest(text="weather forecast")
    narrower.narrow(request)
    assert not narrower.narrow(request).shortlist.cached


@proves("D12")
def test_signals_do_not_count_when_the_flag_is_off() -> None:
    narrowing = narrow(
        "use search_inbox: weather files", OFFICE, settings_of(flags={"intent_signals": False})
    )
    signals = {part.signal for one in narrowing.shortlist.candidates for part in one.parts}
    assert signals <= {"words", "server", "meaning"}


def test_a_tool_one_asks_about_is_explained_though_it_came_in_last() -> None:
    many = {"s": [tool(f"search_flights_{number}", "Search flights.") for number in range(40)], **OFFICE}
    narrowing = narrow("search flights", many, about="mail/send_email")
    last = narrowing.shortlist.candidates[-1]
    assert last.tool == "mail/send_email"
    assert "tools scored higher" in last.lost


@proves("A2")
def test_whether_a_tool_is_needed_is_judged_beside_what_is_found() -> None:
    assert narrow("hello there", OFFICE).need.verdict == "none"
    assert narrow("Send an email to dana@example.com about the offer", OFFICE).need.verdict == "tool"


def test_requests_on_many_threads_while_the_catalog_changes_all_get_a_whole_answer() -> None:
    narrower = narrower_of(OFFICE, settings_of(flags={"narrow_cache": False}))
    snapshots = [snapshot_of(OFFICE), snapshot_of({"mail": OFFICE["mail"]}), Snapshot()]
    keys = {card.key for card in snapshots[0].cards}
    wrong: list[str] = []

    def ask() -> None:
        for _ in range(25):
            found = narrower.narrow(NarrowRequest(text="send an email and search flights"))
            wrong.extend(one.tool for one in found.shortlist.candidates if one.tool not in keys)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(30):
        narrower.prepare(snapshots[turn % 3])
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert not wrong


@proves("N5")
def test_a_hebrew_request_finds_a_tool_described_in_english() -> None:
    assert list_offered(narrow("מה תחזית מזג האוויר למחר באוסלו?", OFFICE))[0] == "weather/get_forecast"
    both = narrow("תחפש טיסות מרומא לאוסלו ותשלח מייל לדנה", OFFICE)
    assert {"travel/search_flights", "mail/send_email"} <= set(list_offered(both))


class OnlyOneServerIsReady(DenseScorer):
    """The real encoder over a catalog whose first server alone has its vectors yet."""

    def __init__(self, server: str, snapshot: Snapshot) -> None:
        super().__init__(get_shared_encoder())
        self._absent = np.array([card.server != server for card in snapshot.cards])
        self.hastened: list[list[int]] = []

    @property
    def ready(self) -> float:
        return 0.5

    def prioritize(self, rows: Sequence[int]) -> None:
        self.hastened.append(list(rows))

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Scores:
        return np.where(self._absent, np.float32(np.nan), super().scores(request, cards)).astype(np.float32)


@pytest.mark.slow
@proves("N2")
def test_tools_of_another_matter_do_not_spoil_those_that_are_not_ready_yet() -> None:
    """The vectors of a catalog come server by server; the words of the others still count in full."""
    files = [tool(f"{verb}_file", f"{verb.title()}s a file on the disk.", "path") for verb in VERBS]
    tools = {"files": files, "time": [tool("current_time", "The time it is now in a city.", "city")]}
    snapshot, settings = snapshot_of(tools), settings_of(dense=True)
    meaning = OnlyOneServerIsReady("files", snapshot)
    narrower = Narrower(settings, parts=replace(build_default_components(settings), meaning=meaning))
    narrower.prepare(snapshot)
    try:
        assert narrower.wait_until_ready(50)
        early = narrower.narrow(NarrowRequest(text="What time is it in Oslo right now?"))
    finally:
        narrower.close()
    assert list_offered(early)[0] == "time/current_time"
    assert early.shortlist.fit > 0.25  # it is not "no tool here is meant for that"
    assert meaning.hastened[0][0] == [card.key for card in snapshot.cards].index("time/current_time")


@proves("N2")
def test_words_serve_at_once_and_meaning_joins_when_it_is_ready(tmp_path: Path) -> None:
    settings = settings_of(dense=True, narrow={"vectors": str(tmp_path)}, flags={"narrow_cache": True})
    narrower = narrower_of({"mail": OFFICE["mail"], "weather": OFFICE["weather"]}, settings)
    request = NarrowRequest(text="will I need an umbrella in Oslo?")
    try:
        assert narrower.narrow(request).shortlist.considered == 3
        assert narrower.wait_until_ready(50)
        narrowing = narrower.narrow(request)
    finally:
        narrower.close()
    assert narrowing.shortlist.dense
    assert list_offered(narrowing)[0] == "weather/get_forecast"
    assert any(part.signal == "meaning" for part in narrowing.shortlist.candidates[0].parts)


@proves("D3")
def test_every_candidate_says_how_slow_its_tool_is_and_how_sure_we_are_of_it() -> None:
    tools = {
        "a": [tool("search_pages", "Search pages on the web.")],
        "b": [tool("deep_research", "Deep research of pages on the web.")],
        "c": [tool("delete_branch", "Delete a branch of a repository.")],
    }
    narrowing = narrow("search pages on the web", tools)
    assert candidate(narrowing, "a/search_pages").latency == "fast"
    assert candidate(narrowing, "b/deep_research").latency == "very_slow"
    levels = [one.confidence for one in narrowing.shortlist.candidates]
    assert set(levels) <= {"high", "medium", "low"}
    assert candidate(narrowing, "c/delete_branch").confidence == "low"
    assert levels == sorted(levels, key=("high", "medium", "low").index)


@proves("Q2")
def test_each_need_prefers_tools_that_do_what_it_wants() -> None:
    tools = {
        "git": [
            tool("git_commit", "Records changes to the repository", "repo_path", "message"),
            tool("git_log", "Shows the commit logs", "repo_path"),
            tool("git_show", "Shows the contents of a commit", "repo_path", "revision"),
            tool("git_add", "Adds file contents to the staging area", "repo_path", "files"),
        ],
        "graph": [
            tool("read_graph", "Read the entire knowledge graph"),
            tool("search_nodes", "Search for nodes in the knowledge graph based on a query", "query"),
            tool(
                "add_observations", "Add new observations to entities in the knowledge graph", "observations"
            ),
        ],
    }
    found = narrow("find the newest commit and note it in my knowledge graph", tools)
    assert {"git/git_log", "git/git_show"} & set(list_offered(found))
    assert "graph/add_observations" in list_offered(found)
    assert "git/git_commit" not in list_offered(found)
    by_tool = {one.tool: {part.signal: part for part in one.parts} for one in found.shortlist.candidates}
    assert by_tool["git/git_commit"]["mood"].note == "the request only asks, and this tool changes something"
    assert by_tool["graph/read_graph"]["mood"].note == "the request wishes a change, and this tool only reads"


@proves("Q6")
def test_a_long_request_stays_with_the_servers_it_is_about() -> None:
    tools = {
        "hospital": [
            tool("list_patients", "Lists patients of a ward"),
            tool("get_lab_results", "Laboratory results of a patient"),
            tool("get_medication", "Medication of a patient"),
        ],
        "library": [tool("search_results", "Search results of the library"), tool("lend", "Lends a book")],
    }
    short = "lab results of the patients on the ward, and their medication"
    long = f"{short}. {'I am new on this ward and would like to know what is going on there today. ' * 8}"

    def get_distance(text: str) -> float:
        found = {one.tool: one for one in narrow(text, tools).shortlist.candidates}
        parts = [
            sum(part.points for part in found[name].parts if part.signal == "server")
            for name in ("hospital/get_lab_results", "library/search_results")
        ]
        return parts[0] - parts[1]

    assert get_distance(long) > 3 * get_distance(short) > 0
