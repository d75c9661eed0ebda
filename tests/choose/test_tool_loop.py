from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.choose.client_options import ClientOptions
from fingerpost.choose.tool_loop import MAX_CALLS_PER_TURN, ModelTurn, build_turn_request, parse_turn
from fingerpost.events import PacketReceived
from fingerpost.events.codec import decode, encode
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import Json, JsonObject, Message, Step, ToolCall
from fingerpost.settings.model import ChooseSettings
from tests.kit.catalogs import catalog, create_listing
from tests.kit.choices import READ, create_history, fits, packet, pick, step
from tests.kit.tables import table
from tests.requirements import proves

SETTINGS = ChooseSettings()
HISTORY = create_history("Hello", "Hello to you.")
CARDS = pick("time/get_current_time", "files/read_file", "desk/file_operations")
OWN: JsonObject = {"type": "function", "function": {"name": "read_result", "parameters": {"type": "object"}}}


def ask(*steps: Step, tools: bool = True, final: bool = False, note: str = "") -> ModelRequest:
    return build_turn_request(
        packet("What time is it?", *steps),
        CARDS,
        system="SYSTEM",
        history=HISTORY,
        settings=SETTINGS,
        final=final,
        has_tool_support=tools,
        note=note,
    )


def serialize_messages(messages: tuple[Message, ...]) -> str:
    return "".join(
        json.dumps([message.role, message.text, message.tool_calls, message.tool_call_id])
        for message in messages
    )


def reply(text: str = "", *calls: tuple[str, Json]) -> ModelReply:
    written = tuple(
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    )
    return ModelReply(text=text, model="m", tool_calls=written)


@proves("B4")
def test_one_question_has_the_conversation_and_the_eligible_tools_on_auto() -> None:
    request = ask()
    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "SYSTEM"),
        ("user", "Hello"),
        ("assistant", "Hello to you."),
        ("user", "What time is it?"),
    ]
    names = [tool["function"]["name"] for tool in json.loads(json.dumps(request.tools))]
    assert names == ["desk__file_operations", "files__read_file", "time__get_current_time"]
    assert (request.tool_choice, request.schema) == ("auto", None)


@proves("B4")
def test_each_step_is_told_as_the_call_and_the_reply_to_it() -> None:
    call, result = ask(step(1)).messages[-2:]
    assert call.tool_calls == (
        {
            "id": "call_0001",
            "type": "function",
            "function": {"name": "time__get_current_time", "arguments": '{"timezone": "Zone/1"}'},
        },
    )
    assert (result.role, result.tool_call_id, result.text) == ("tool", "call_0001", step(1).text)


@proves("C9", "W7")
@pytest.mark.parametrize("tools", [True, False])
def test_every_turn_begins_with_the_one_before_byte_for_byte(tools: bool) -> None:
    steps = [step(number) for number in range(1, 6)]
    turns = [ask(*steps[:made], tools=tools) for made in range(6)]
    turns.append(ask(*steps, tools=tools, final=True))
    for before, after in itertools.pairwise(turns):
        assert serialize_messages(after.messages).startswith(serialize_messages(before.messages))
        assert after.tools == before.tools


def test_the_last_turn_keeps_the_tools_in_place_and_forbids_them() -> None:
    request = ask(step(1), final=True)
    assert request.tool_choice == "none"
    assert request.tools == ask().tools
    assert "No further tool" in request.messages[-1].text


def test_the_messages_come_from_the_packet_alone_and_survive_being_stored() -> None:
    made = packet("What time is it?", step(1), step(2))
    again = decode(encode(PacketReceived.from_packet(made)))
    assert isinstance(again, PacketReceived)
    both = [
        build_turn_request(one, CARDS, system="", history=(), settings=SETTINGS)
        for one in (made, again.packet)
    ]
    assert both[0] == both[1]


def test_arguments_are_told_in_the_same_bytes_whatever_order_they_were_written_in() -> None:
    one, other = (
        Step(tool="t/t", arguments=arguments, success=True, text="x", call_id="c")
        for arguments in ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
    )
    assert serialize_messages(ask(one).messages) == serialize_messages(ask(other).messages)
    assert ask(one, tools=False).messages == ask(other, tools=False).messages


def test_calls_without_an_id_or_with_the_same_get_ids_of_their_own() -> None:
    twice = [
        Step(tool="gone/tool", arguments={}, success=True, text="x", call_id=reference)
        for reference in ("", "a" * 60, "a" * 60, "call_3")
    ]
    replies = [message.tool_call_id for message in ask(*twice).messages if message.role == "tool"]
    assert replies == ["call_1", "a" * 40, "call_3", "call_4"]


def test_what_was_wrong_with_the_last_reply_is_told_last() -> None:
    note = ModelTurn(problems=("the call could not be read",)).note
    assert ask(step(1), note=note).messages[-1] == Message(role="user", text=note)
    assert ModelTurn().note == ""


def test_without_tools_on_offer_none_are_sent() -> None:
    request = build_turn_request(packet(), (), system="", history=(), settings=SETTINGS)
    assert (request.tools, request.tool_choice) == ((), None)
    own = build_turn_request(packet(), CARDS, system="", history=(), settings=SETTINGS, own_tools=(OWN,))
    assert own.tools[-1] == OWN


def test_a_model_without_tool_support_is_told_in_the_prompt_and_answers_in_json() -> None:
    request = ask(step(1), tools=False)
    assert request.tools == ()
    assert request.messages[0].text == "SYSTEM", (
        "what changes from request to request stands behind the history"
    )
    asked = request.messages[3].text
    assert '"name": "time__get_current_time"' in asked
    assert asked.endswith("# REQUEST\nWhat time is it?")
    call, result = request.messages[-2:]
    assert fits(json.loads(call.text), request)
    assert result.role == "user"
    assert "result 1" in result.text


def test_a_last_turn_in_json_may_only_answer() -> None:
    last = ask(step(1), tools=False, final=True)
    assert fits({"calls": [], "answer": "Five."}, last)
    assert not fits({"calls": [{"tool": "time__get_current_time", "arguments": {}}], "answer": "Five."}, last)
    assert not fits({"calls": [], "answer": None}, last)


@pytest.mark.parametrize("final", [True, False])
def test_who_wants_text_is_told_of_no_tools_and_asked_for_no_json(final: bool) -> None:
    call: JsonObject = {
        "id": "c1",
        "type": "function",
        "function": {"name": "read_result", "arguments": "{}"},
    }
    since = (
        Message(role="assistant", text="", tool_calls=(call,)),
        Message(role="tool", text="Bears.", tool_call_id="c1"),
    )
    for brought in (
        ClientOptions(tools=(OWN,), tool_choice="none"),
        ClientOptions(tools=(OWN,), tool_choice="none", later_messages=since),
    ):
        request = build_turn_request(
            packet("What time is it?"),
            CARDS,
            system="SYSTEM",
            history=HISTORY,
            settings=SETTINGS,
            final=final,
            has_tool_support=False,
            client=brought,
        )
        prompt = "\n".join(message.text for message in request.messages)
        assert (request.tools, request.schema, request.messages[3].text) == ((), None, "What time is it?")
        assert "JSON" not in prompt
        assert '"calls"' not in prompt, "a model goes on as it began"
        assert not brought.later_messages or "Bears." in prompt


def test_a_choice_of_the_callers_is_marked_as_theirs() -> None:
    for choice in (None, "required"):
        request = build_turn_request(
            packet("What time is it?"),
            CARDS,
            system="",
            history=(),
            settings=SETTINGS,
            client=ClientOptions(tools=(OWN,), tool_choice=choice),
        )
        assert request.choice_is_callers is (choice is not None)


@proves("B4", "C1")
def test_several_calls_and_a_text_are_read_from_one_reply() -> None:
    turn = parse_turn(
        reply(
            "Looking …",
            ("time__get_current_time", '{"timezone": "Asia/Tokyo"}'),
            ("read_file", '{"path": "a"}'),
        ),
        CARDS,
    )
    assert turn == ModelTurn(
        text="Looking …",
        calls=(
            ToolCall(name="time/get_current_time", arguments={"timezone": "Asia/Tokyo"}, reference="c0"),
            ToolCall(name="files/read_file", arguments={"path": "a"}, reference="c1"),
        ),
    )


@proves("B4")
def test_a_reply_without_calls_is_the_answer() -> None:
    assert parse_turn(reply(" It is five. "), CARDS) == ModelTurn(text="It is five.")
    assert parse_turn(reply('{"calls": []}'), CARDS) == ModelTurn(text='{"calls": []}'), (
        "with tools, text is text"
    )


@proves("C1")
def test_a_call_that_cannot_be_read_is_a_problem_and_its_neighbour_is_not() -> None:
    turn = parse_turn(reply("", ("read_file", '{"path": '), ("read_file", '{"path": "b"}')), CARDS)
    assert [call.arguments for call in turn.calls] == [{"path": "b"}]
    assert "not valid JSON" in turn.problems[0]
    assert "could not be used" in turn.note


@proves("C3")
@table("name", ["files__delete_file", "delete_file", "files/write_file", "bash", "", "\u202e"])
def test_a_tool_that_was_not_offered_is_never_called(name: str) -> None:
    turn = parse_turn(reply("", (name, "{}")), CARDS)
    assert turn.calls == ()
    assert len(turn.problems) == 1


@table(
    ("written", "key"),
    [
        ("files__read_file", "files/read_file"),
        ("files/read_file", "files/read_file"),
        ("read_file", "files/read_file"),
        ("functions.read_file", "files/read_file"),
        ("ReadFile", "files/read_file"),
        ("default_api.ReadFile:0", "files/read_file"),
        ("read_result", "read_result"),
    ],
)
def test_a_name_is_understood_however_models_write_it(written: str, key: str) -> None:
    turn = parse_turn(reply("", (written, "{}")), CARDS, own_names=("read_result",))
    assert [call.name for call in turn.calls] == [key]


@pytest.mark.parametrize("written", ["file_operations.read_file", "desk/file_operations::read_file"])
def test_an_operation_in_a_name_becomes_an_argument(written: str) -> None:
    turn = parse_turn(reply("", (written, '{"path": "a"}')), CARDS)
    assert turn.calls[0].name == "desk/file_operations"
    assert turn.calls[0].arguments == {"path": "a", "operation": "read_file"}


def test_a_bare_name_two_tools_share_means_neither() -> None:
    twins = catalog(create_listing("here", READ), create_listing("there", READ)).snapshot.cards
    turn = parse_turn(reply("", ("read_file", "{}")), twins)
    assert turn.calls == ()
    assert "here__read_file" in turn.problems[0]
    assert [call.name for call in parse_turn(reply("", ("there__read_file", "{}")), twins).calls] == [
        "there/read_file"
    ]


def test_more_calls_than_a_turn_may_make_are_left_out_and_told() -> None:
    turn = parse_turn(reply("", *[("read_file", f'{{"path": "{number}"}}') for number in range(20)]), CARDS)
    assert len(turn.calls) == MAX_CALLS_PER_TURN
    assert "call fewer at once" in turn.problems[0]


@table(
    ("text", "expected"),
    [
        ('{"calls": [], "answer": "Five."}', ModelTurn(text="Five.")),
        ('```json\n{"calls": [], "answer": "Five."}\n```', ModelTurn(text="Five.")),
        ("It is five o'clock.", ModelTurn(text="It is five o'clock.")),
        ('<think>{"answer": "no"}</think>\nIt is five.', ModelTurn(text="It is five.")),
        (
            'Sure: {"calls": [{"tool": "read_file", "arguments": "{\\"path\\": \\"a\\"}"}], "answer": null}',
            ModelTurn(calls=(ToolCall(name="files/read_file", arguments={"path": "a"}),)),
        ),
        (
            '[{"name": "read_file", "arguments": {"path": "a"}}]',
            ModelTurn(calls=(ToolCall(name="files/read_file", arguments={"path": "a"}),)),
        ),
        (
            '{"calls": {"tool": "read_file", "arguments": {}}, "answer": "wait"}',
            ModelTurn(calls=(ToolCall(name="files/read_file", arguments={}),), text="wait"),
        ),
    ],
)
def test_the_json_form_is_read_in_the_ways_models_write_it(text: str, expected: ModelTurn) -> None:
    assert parse_turn(reply(text), CARDS, has_tool_support=False) == expected


@table(
    "text",
    [
        "",
        "{}",
        '{"calls": [], "answer": null}',
        '{"calls": [{"tool": "read_file", "arguments": {"answer": "42"}}',
        '{"calls": [{"tool": 7}], "answer": null}',
        '{"calls": [{"tool": "read_file", "arguments": {"n": 1e999}}], "answer": null}',
        '{"calls": ["read_file"], "answer": null}',
    ],
)
def test_json_that_is_no_turn_calls_nothing_and_says_what_is_wrong(text: str) -> None:
    turn = parse_turn(reply(text), CARDS, has_tool_support=False)
    assert (turn.calls, turn.text) == ((), "")
    assert turn.problems


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.just("read_file"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["calls", "answer", "tool", "name", "arguments", "x"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@given(value=JSON, around=st.text(max_size=30), tools=st.booleans())
def test_no_reply_crashes_and_none_calls_what_was_not_offered(value: Json, around: str, tools: bool) -> None:
    text = f"{around}{json.dumps(value)}{around}"
    offered = {card.key for card in CARDS}
    for made in (reply(text), reply(text, (around, text), ("read_file", value))):
        turn = parse_turn(made, CARDS, has_tool_support=tools)
        assert all(call.name.partition(".")[0] in offered for call in turn.calls)
        assert len(turn.note) < 12_000


@given(text=st.text(alphabet='{}[]",:calsnwer\\ \n', max_size=400))
def test_arbitrary_text_in_json_form_never_crashes(text: str) -> None:
    parse_turn(reply(text), CARDS, has_tool_support=False)
