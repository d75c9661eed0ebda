"""Which tool is taken without a model: only the one that is certainly meant, else the person is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fingerpost.choose.keyless.choice import (
    NO_PATHS,
    KeylessChoice,
    choose_tool,
    is_refusal,
    pick_option,
)
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import (
    Candidate,
    Effect,
    JsonObject,
    Known,
    KnownPath,
    Narrowing,
    Need,
    NeedVerdict,
    ServerPaths,
    Shortlist,
    Source,
    ToolCard,
)
from tests.choose.keyless.corpus import TODAY, every_card, read, snapshot
from tests.kit.narrowing import settings_of
from tests.kit.tables import table
from tests.requirements import proves


@pytest.fixture(scope="module")
def narrower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Narrower]:
    """The shipped narrower over the definitions of seven real servers."""
    folder: Path = tmp_path_factory.mktemp("vectors")
    settings = settings_of(dense=True, narrow={"vectors": str(folder)})
    made = Narrower(settings, parts=build_default_components(settings))
    made.prepare(snapshot("real"))
    assert made.wait_until_ready(50)
    yield made
    made.close()


def choose(
    narrower: Narrower,
    request: str,
    *,
    zone: str | None = "Etc/UTC",
    needs_approval: frozenset[str] = frozenset(),
    paths: Mapping[str, ServerPaths] = NO_PATHS,
) -> KeylessChoice:
    cards = {card.key: card for card in snapshot("real").cards}
    narrowing = narrower.narrow(NarrowRequest(text=request))
    return choose_tool(
        narrowing, cards, request, today=TODAY, zone=zone, needs_approval=needs_approval, paths=paths
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_text", "tool"),
    [
        ("what time is it in Tokyo right now?", "time/get_current_time"),
        ("מה השעה בטוקיו?", "time/get_current_time"),
        ("what time is it?", "time/get_current_time"),
        ("convert 14:30 from London to Tokyo", "time/convert_time"),
        ("read notes.md", "files/read_text_file"),
        ("תקרא את notes.md", "files/read_text_file"),
        ("show me photo.png", "files/read_media_file"),
        ("read a.txt and b.txt", "files/read_multiple_files"),
        ("list the files in /srv/docs", "files/list_directory"),
        ("when was report.pdf last modified", "files/get_file_info"),
        ("find files matching *.md in /srv/docs", "files/search_files"),
        ("fetch https://example.com", "fetch/fetch"),
        ("show the last 3 commits of /srv/app", "git/git_log"),
        ("list the tables in the database", "sqlite/list_tables"),
        ("run `SELECT count(*) FROM orders`", "sqlite/read_query"),
        ("search my memory for Dana", "memory/search_nodes"),
        ("commit /srv/app with message 'fix'", "git/git_commit"),
    ],
)
def test_a_clear_request_finds_its_tool_with_complete_arguments(
    narrower: Narrower, request_text: str, tool: str
):
    certain = choose(narrower, request_text)
    assert certain.option is not None, certain.reason
    assert certain.card is not None
    assert certain.card.key == tool
    assert certain.option.filled.is_complete
    assert certain.question is None


@pytest.mark.slow
@proves("Q7")
@table(
    ("request_text", "tool", "arguments"),
    [
        ("¿Qué hora es en Tokio?", "time/get_current_time", {"timezone": "Asia/Tokyo"}),
        ("Wie spät ist es in Tokio?", "time/get_current_time", {"timezone": "Asia/Tokyo"}),
        ("Прочитай файл notes.md", "files/read_text_file", {"path": "notes.md"}),
        ("Baixa a página https://example.org", "fetch/fetch", {"url": "https://example.org"}),
    ],
)
def test_a_clear_request_in_another_language_finds_its_tool_and_its_values(
    narrower: Narrower, request_text: str, tool: str, arguments: JsonObject
):
    certain = choose(narrower, request_text)
    assert certain.option is not None, certain.reason
    assert (certain.option.card.key, certain.option.filled.arguments) == (tool, arguments)


def test_a_clear_tool_with_something_missing_is_taken_and_the_rest_asked(narrower: Narrower):
    certain = choose(narrower, "git status")
    assert certain.option is not None
    assert certain.option.card.key == "git/git_status"
    assert [one.name for one in certain.option.filled.missing] == ["repo_path"]


@pytest.mark.parametrize("request_text", ["move a.txt to b.txt", 'write "hello" to x.txt'])
def test_what_may_destroy_is_asked_about_however_certain_it_is(narrower: Narrower, request_text: str):
    certain = choose(narrower, request_text)
    assert certain.option is None
    assert certain.question is not None
    (only,) = certain.alternatives
    assert only.card.effect.value is Effect.DESTROY
    assert only.filled.is_complete
    assert only.card.key in certain.question.text
    assert pick_option(certain.alternatives, "yes") is only
    assert pick_option(certain.alternatives, "no") is None
    # An answer to this chooses; it must never pass for the last argument that was missing.
    assert certain.question.tool is None
    # Where the policy asks about the exact call, there is no second question.
    asked_later = choose(narrower, request_text, needs_approval=frozenset({only.card.key}))
    assert asked_later.option is not None
    assert asked_later.option.card == only.card


def test_a_no_is_understood_in_both_languages():
    assert [is_refusal(answer) for answer in ("No.", "לא", "cancel", "yes", "2")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "request_text",
    ["hello there", "what is 17*23?", "order a pizza", "play some jazz", "book me a flight to Mars"],
)
def test_nothing_is_taken_where_nothing_fits(narrower: Narrower, request_text: str):
    certain = choose(narrower, request_text)
    assert (certain.option, certain.question) == (None, None)


@pytest.mark.parametrize(
    "request_text",
    ["don't read secrets.env", "compare 4f2a9bc with 9d8e7f6 in ~/app", "delete the file notes.md"],
)
def test_nothing_runs_that_would_leave_aside_what_the_request_names(narrower: Narrower, request_text: str):
    certain = choose(narrower, request_text)
    assert certain.option is None or not certain.option.filled.is_complete


def test_a_tool_named_outright_is_taken(narrower: Narrower):
    certain = choose(narrower, "use read_graph")
    assert certain.card is not None
    assert certain.card.key == "memory/read_graph"
    assert "names" in certain.reason


@pytest.mark.parametrize("text", ["use other/git_commit on /srv/app", "other__git_commit for /srv/app 'x'"])
def test_a_namesake_is_not_taken_for_the_tool_of_a_server_that_is_not_here(narrower: Narrower, text: str):
    found = choose(narrower, text)
    assert found.option is None
    assert found.question is not None and "git/git_commit" in found.question.text
    choice = choose(narrower, "use git/git_commit on /srv/app with message 'x'")
    assert choice.card is not None and choice.card.key == "git/git_commit"


def create_narrowing(request: str, *scores: tuple[str, float], fit: float = 0.8) -> Narrowing:
    """A narrowing with these tools offered: the borders of the rules are set by hand."""
    candidates = tuple(Candidate(tool=tool, score=score, offered=True) for tool, score in scores)
    return Narrowing(
        need=Need(verdict=NeedVerdict.TOOL, score=0.9),
        signals=read(request),
        shortlist=Shortlist(candidates=candidates, needs=(request,), fit=fit),
    )


def among(request: str, *scores: tuple[str, float], **changed: ToolCard) -> KeylessChoice:
    cards = {**every_card(), **{card.key: card for card in changed.values()}}
    return choose_tool(create_narrowing(request, *scores), cards, request, today=TODAY)


def test_between_two_that_would_do_alike_the_person_is_asked():
    request = "a report about notes.txt"
    certain = among(request, ("files/read_text_file", 0.5), ("files/get_file_info", 0.48))
    assert certain.option is None
    assert certain.question is not None
    assert certain.question.text.splitlines()[1].startswith("1. files/read_text_file: ")
    assert certain.question.missing[0].options == ("files/read_text_file", "files/get_file_info")
    second = pick_option(certain.alternatives, "2")
    assert second is not None
    assert second.card.key == "files/get_file_info"
    assert pick_option(certain.alternatives, "files/get_file_info") is second
    assert pick_option(certain.alternatives, "3") is None


def test_a_clear_distance_decides():
    certain = among("tell me of notes.txt", ("files/get_file_info", 0.6), ("files/read_text_file", 0.5))
    assert certain.card is not None
    assert certain.card.key == "files/get_file_info"


def test_complete_arguments_go_before_a_slightly_better_score():
    certain = among("time in Oslo", ("time/convert_time", 0.5), ("time/get_current_time", 0.48))
    assert certain.card is not None
    assert certain.card.key == "time/get_current_time"


def test_reading_is_no_answer_to_a_wish_to_change_something():
    certain = among("refund order ORD-5521", ("shop/refund", 0.6), ("shop/get_order", 0.55))
    assert certain.option is None
    assert certain.question is not None


def test_a_question_is_for_a_tool_that_reads():
    scores = (("files/write_file", 0.6), ("files/list_directory", 0.5))
    certain = among("what files are in /srv/docs", *scores)
    assert certain.card is not None
    assert certain.card.key == "files/list_directory"
    assert among("what if you delete the files in /srv/docs", *scores).option is None


REPOSITORY = ServerPaths(repositories=(KnownPath(path="/srv/app", source="the repository it runs in"),))
FOLDER = ServerPaths(directories=(KnownPath(path="/srv/docs", source="an argument of its entry"),))


@proves("Q1")
@table(
    ("request_text", "tool", "arguments"),
    [
        ("what is the latest commit?", "git/git_log", {"repo_path": "/srv/app", "max_count": 1}),
        ("list the last 3 commits", "git/git_log", {"repo_path": "/srv/app", "max_count": 3}),
        ("show the five most recent commits", "git/git_log", {"repo_path": "/srv/app", "max_count": 5}),
        ("git status", "git/git_status", {"repo_path": "/srv/app"}),
        ("which branches are there?", "git/git_branch", {"repo_path": "/srv/app", "branch_type": "all"}),
        ("git log of /srv/other", "git/git_log", {"repo_path": "/srv/other"}),
        (
            "switch to the branch develop",
            "git/git_checkout",
            {"repo_path": "/srv/app", "branch_name": "develop"},
        ),
        ("git add a.py and b.py", "git/git_add", {"repo_path": "/srv/app", "files": ["a.py", "b.py"]}),
        ("list the files in the folder", "files/list_directory", {"path": "/srv/docs"}),
        ("list the files in the notes folder", "files/list_directory", {"path": "notes"}),
        ('get the file info of "Makefile"', "files/get_file_info", {"path": "Makefile"}),
        ("show me notes.md", "files/read_file", {"path": "notes.md"}),
        ("create a folder called reports", "files/create_directory", {"path": "reports"}),
        (
            "when it is 18:00 in Rome, what time is it in Oslo?",
            "time/convert_time",
            {"source_timezone": "Europe/Rome", "time": "18:00", "target_timezone": "Europe/Oslo"},
        ),
        ("describe the table orders", "sqlite/describe_table", {"table_name": "orders"}),
        (
            "execute INSERT INTO pets (name, age) VALUES ('Rex', 3) on the database",
            "sqlite/write_query",
            {"query": "INSERT INTO pets (name, age) VALUES ('Rex', 3)"},
        ),
    ],
)
def test_surroundings_fill_what_the_request_leaves_open(
    narrower: Narrower, request_text: str, tool: str, arguments: JsonObject
) -> None:
    found = choose(narrower, request_text, paths={"git": REPOSITORY, "files": FOLDER})
    assert found.option is not None, found
    assert (found.option.card.key, found.option.filled.arguments) == (tool, arguments)


@proves("Q1")
def test_nothing_is_guessed_between_two_repositories(narrower: Narrower) -> None:
    both = replace(REPOSITORY, repositories=(*REPOSITORY.repositories, KnownPath(path="/srv/b", source="b")))
    found = choose(narrower, "git status", paths={"git": both})
    assert found.option is not None
    assert [one.name for one in found.option.filled.missing] == ["repo_path"]


@proves("Q2")
def test_a_question_never_leads_to_a_change():
    changing = among("which message did the commit 'fix' have?", ("git/git_commit", 0.9))
    assert changing.option is None
    assert changing.question is not None
    text = "stage a.py and b.py"
    either = create_narrowing(text, ("files/read_multiple_files", 0.5), ("git/git_add", 0.49))
    order = choose_tool(either, every_card(), text, today=TODAY, paths={"git": REPOSITORY})
    assert order.option is None


def test_what_no_tool_can_delete_is_not_asked_about():
    found = among("delete the file notes.md", ("files/write_file", 0.6), ("files/read_file", 0.5))
    assert (found.option, found.question) == (None, None)


def test_a_deprecated_tool_gives_way():
    certain = among("read notes.txt", ("files/read_file", 0.6), ("files/read_text_file", 0.5))
    assert certain.card is not None
    assert certain.card.key == "files/read_text_file"


def test_a_tool_that_was_hidden_meanwhile_is_not_taken():
    narrowing = create_narrowing("read notes.txt", ("files/read_text_file", 0.6))
    assert choose_tool(narrowing, {}, "read notes.txt", today=TODAY).option is None


def test_each_need_of_a_request_is_looked_at_by_itself():
    request = "read a.txt and tell me the time in Oslo"
    narrowing = create_narrowing(request, ("files/read_text_file", 0.6), ("time/get_current_time", 0.6))
    first, second = narrowing.shortlist.candidates
    needs = ("read a.txt", "tell me the time in Oslo")
    shortlist = replace(narrowing.shortlist, needs=needs, candidates=(first, replace(second, need=1)))
    both = [
        choose_tool(
            replace(narrowing, shortlist=shortlist), every_card(), request, today=TODAY, need=need
        ).option
        for need in (0, 1)
    ]
    assert [option.filled.arguments for option in both if option] == [
        {"path": "a.txt"},
        {"timezone": "Europe/Oslo"},
    ]


def test_a_written_effect_counts_like_any_other():
    card = every_card()["files/read_text_file"]
    dangerous = replace(card, effect=Known(Effect.DESTROY, Source.WRITTEN))
    certain = among("read notes.txt", ("files/read_text_file", 0.6), card=dangerous)
    assert certain.option is None
    assert certain.question is not None
