"""After a failure: the next step for the model, plain words for a person, the exact error for programs."""

from __future__ import annotations

from fingerpost.call.outcomes import build_guidance, format_tool_name, get_advice
from fingerpost.records import Attempt, ErrorKind, utc_now
from tests.kit.tables import table
from tests.requirements import proves

RAW = "HTTPStatusError: 502 Bad Gateway for url http://10.0.0.7:9000/v1?token=abcdef123456"


def attempt(tool: str, error: ErrorKind | None, number: int = 1, seconds: float = 0.2) -> Attempt:
    return Attempt(
        tool=tool, number=number, began=utc_now(), milliseconds=seconds * 1000, error=error, detail=RAW
    )


@table(
    ("error", "step"),
    [
        (ErrorKind.INVALID_PARAMETERS, "call the same tool again"),
        (ErrorKind.EXECUTION_FAILED, "another way"),
        (ErrorKind.TIMEOUT, "smaller steps"),
        (ErrorKind.CANCELLED, "Do not ask for it again"),
        (ErrorKind.DENIED, "rule forbids"),
        (ErrorKind.UNAVAILABLE, "another tool"),
        (ErrorKind.LOOP, "Stop repeating"),
        (ErrorKind.UNKNOWN, "Check with a reading tool"),
        (ErrorKind.AUTHORIZATION_REQUIRED, "Wait; do not call again"),
        (ErrorKind.TOOL_NOT_FOUND, "exact name"),
        (ErrorKind.OPERATION_NOT_SUPPORTED, "Use one that it has"),
    ],
)
@proves("C8")
def test_each_kind_of_error_has_its_own_next_step(error: ErrorKind, step: str) -> None:
    assert step in get_advice(error)


@proves("C8")
def test_the_advice_carries_what_makes_the_next_try_succeed() -> None:
    advice = get_advice(
        ErrorKind.INVALID_PARAMETERS, signature="read_file(path: string)", hint="path is missing"
    )
    assert "read_file(path: string)" in advice
    assert "path is missing" in advice
    near = get_advice(ErrorKind.TOOL_NOT_FOUND, near=[f"files/read{number}" for number in range(9)])
    assert "files/read0, files/read1" in near
    assert "files/read8" not in near


@proves("C8", "F49")
def test_the_advice_is_masked_visible_and_bounded() -> None:
    advice = get_advice(ErrorKind.TIMEOUT, hint="password=hunter22 \x1b[2J\nmore " + "x" * 9_000)
    assert "hunter22" not in advice
    assert "\x1b" not in advice
    assert "\n" not in advice
    assert len(advice) < 800


@table("error", list(ErrorKind))
@proves("D11")
def test_a_person_never_sees_a_raw_error(error: ErrorKind) -> None:
    tried = [
        attempt("perplexity/perplexity_research", error),
        attempt("tavily/tavily_search", ErrorKind.TIMEOUT),
    ]
    made = build_guidance(tried, error, tool="perplexity/perplexity_research", detail=RAW, hint=RAW)
    plain = made.render()
    for word in (
        "HTTPStatusError",
        "502",
        "10.0.0.7",
        "Traceback",
        "Error:",
        error.value if "_" in error else "§",
    ):
        assert word not in plain
    assert made.tried
    assert made.can_change
    assert "HTTPStatusError" in made.render(technical=True)
    assert "abcdef123456" not in made.render(technical=True)


@proves("D11")
def test_guidance_says_what_was_tried_what_to_change_and_how_to_rephrase() -> None:
    made = build_guidance(
        [
            attempt("perplexity/perplexity_research", ErrorKind.TIMEOUT, 1, 60),
            attempt("perplexity/perplexity_research", ErrorKind.TIMEOUT, 2, 60),
            attempt("tavily/tavily_search", ErrorKind.UNAVAILABLE, 3),
        ],
        ErrorKind.UNAVAILABLE,
    )
    assert made.summary == "This failed: 2 tools were tried and none succeeded."
    assert made.tried == (
        "perplexity research, 2 times: it did not answer in time (after 60 s)",
        "tavily search: it could not be reached",
    )
    assert "See which servers are up: fingerpost doctor" in made.can_change
    assert "Ask for less at once" in made.can_change
    assert made.rephrase


@proves("D11")
def test_guidance_without_any_attempt_still_makes_sense() -> None:
    made = build_guidance([], ErrorKind.DENIED, tool="files/delete_file")
    assert made.summary == "delete file (files) could not be used: a rule does not permit it."
    assert made.tried == ()


def test_many_attempts_stay_readable() -> None:
    made = build_guidance([attempt(f"s/tool_{n}", ErrorKind.TIMEOUT) for n in range(50)], ErrorKind.TIMEOUT)
    assert len(made.tried) == 9
    assert made.tried[-1] == "and 42 more"


@table(
    ("key", "text"),
    [
        ("perplexity/perplexity_research", "perplexity research"),
        ("files/readFile", "read file (files)"),
        ("", "the tool"),
        ("s/\u202e", "s/\\u202e"),
    ],
)
def test_a_tool_has_a_name_one_can_say(key: str, text: str) -> None:
    assert format_tool_name(key) == text
