"""Answers from several notes: with a model and without, every statement has its source."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.builtin.knowledge.synthesis import keep_cited_sentences
from fingerpost.errors import ModelUnavailable
from fingerpost.events import SubagentBegan
from fingerpost.records import Mode
from fingerpost.testing import ScriptedModel, calls
from tests.kit.knowledge import OpenKnowledge, expect_success
from tests.requirements import proves

QUESTION = "When and how are the tomatoes watered?"
TOOL = "synthesize_kb_information"


def sources(text: str) -> dict[str, str]:
    """The list under an answer: number to place."""
    return dict(re.findall(r"^\[(\d+)\] (\S+)", text.partition("Sources:\n")[2], re.MULTILINE))


@proves("U7", "B2")
async def test_without_a_model_the_notes_own_sentences_answer_each_with_its_source(
    open_knowledge: OpenKnowledge,
):
    async with open_knowledge() as router:
        text = await expect_success(router, TOOL, question=QUESTION)
        answer = text.partition("\n\nSources:")[0].splitlines()
        listed = sources(text)
        assert "garden/tomatoes.md:10" in listed.values()
        assert any("in the evening" in line for line in answer)
        for line in answer:
            cited = re.search(r"\[(\d+)\]$", line)
            assert cited is not None and cited[1] in listed, line
        assert "no language model" in text


@proves("U7", "B2")
async def test_a_models_answer_keeps_real_sources_and_loses_invented_ones(open_knowledge: OpenKnowledge):
    said_by_model = (
        "Tomatoes are watered in the evening [1]. The hose runs at six [2, 77]. They like music [99]. "
        "Everybody knows that."
    )
    model = ScriptedModel([said_by_model])
    async with open_knowledge(model) as router:
        text = await expect_success(router, TOOL, question=QUESTION)
        assert text.startswith(
            "Tomatoes are watered in the evening [1]. The hose runs at six [2].\n\nSources:"
        )
        assert set(sources(text)) == {"1", "2"}
        assert "2 sentences without a source were left out" in text
        (request,) = model.asked
        assert request.tools == ()
        assert "Water them in the evening" in request.messages[-1].text


@proves("U7")
async def test_a_model_that_cites_nothing_or_fails_leaves_the_notes_own_sentences(
    open_knowledge: OpenKnowledge,
):
    async with open_knowledge(ScriptedModel(["They are watered. Trust me."])) as router:
        text = await expect_success(router, TOOL, question=QUESTION)
        assert "Trust me" not in text and "The model named no source" in text and sources(text)
    async with open_knowledge(
        ScriptedModel(lambda _: ModelUnavailable("it is down", model="scripted"))
    ) as router:
        text = await expect_success(router, TOOL, question=QUESTION)
        assert "The model could not be asked" in text and sources(text)


async def test_a_model_may_say_that_the_notes_do_not_answer(open_knowledge: OpenKnowledge):
    async with open_knowledge(ScriptedModel(["NOT IN THE NOTES"])) as router:
        text = await expect_success(router, TOOL, question="Which tomatoes won the prize?")
        assert text.startswith("The notes do not answer this. Nearest to it:\n- garden/tomatoes.md")


@proves("U7")
async def test_the_model_is_asked_on_the_budget_of_the_request_and_in_its_trace(
    open_knowledge: OpenKnowledge,
):
    model = ScriptedModel(
        [
            calls((f"knowledge__{TOOL}", {"question": QUESTION})),
            "In the evening [1].",
            "You water them in the evening.",
        ]
    )
    async with open_knowledge(model) as router:
        route = await router.route("Across my notes: summarise tomatoes", mode=Mode.SIMPLE)
        assert route.answer.startswith("You water them in the evening.")
        assert [event.kind for event in route.events].count(SubagentBegan.kind) == 1
        assert "In the evening [1]." in model.asked[-1].messages[-1].text


PIECES = st.sampled_from(
    ["Water [1].", "Hose [2, 9].", "[3]", "No source.", "Range [1-2].", "[1–99]", "\n", "- item [2]",
     "# Head", "So:", "[0]", "[999]", "a.b [1]", "end. [2] Next", "[1][2]", "[ 1 ; 3 ]", "?! [1]", "…"]
)  # fmt: skip


@proves("U7")
@given(pieces=st.lists(PIECES | st.text(max_size=20), max_size=12), count=st.integers(0, 4))
def test_whatever_a_model_writes_only_sources_that_exist_are_cited(pieces: list[str], count: int):
    made = keep_cited_sentences(" ".join(pieces), count)
    numbers = [
        int(number) for group in re.findall(r"\[([\d, ]+)\]", made.text) for number in group.split(",")
    ]
    assert all(1 <= number <= count for number in numbers)
    assert set(numbers) == set(made.cited)
    assert bool(made.text) == bool(made.cited)
    assert keep_cited_sentences(made.text, count).cited == made.cited
