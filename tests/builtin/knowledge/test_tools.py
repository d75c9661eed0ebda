"""The six tools of the knowledge base, called as everybody calls them."""

from __future__ import annotations

from pathlib import Path

from fingerpost.call.digest.tokens import count_tokens
from fingerpost.records import Effect
from tests.kit.knowledge import OpenKnowledge, expect_error, expect_success
from tests.requirements import proves


@proves("B2")
async def test_there_are_six_and_all_of_them_only_read(open_knowledge: OpenKnowledge):
    async with open_knowledge() as router:
        cards = router.tools.cards
        assert {card.name for card in cards} == {
            "search_knowledge_base",
            "load_kos_context",
            "read_kb_file",
            "list_kb_directory",
            "load_kb_context",
            "synthesize_kb_information",
        }
        assert {card.effect.value for card in cards} == {Effect.READ}


@proves("B2")
async def test_a_search_gives_passages_with_their_place_and_the_reason(open_knowledge: OpenKnowledge):
    async with open_knowledge() as router:
        found = await expect_success(router, "search_knowledge_base", query="pruning the side shoots")
        assert "[1] garden/tomatoes.md:14-18 · Tomatoes: what worked › Pruning" in found
        assert "shares pruning, side, shoots" in found
        assert "Side shoots go every week." in found


@proves("B2")
async def test_a_search_finds_by_meaning_too(open_knowledge: OpenKnowledge):
    async with open_knowledge(meaning=True) as router:
        found = await expect_success(
            router, "search_knowledge_base", query="automobile maintenance appointment"
        )
        assert found.index("car.txt") < len(found.split("[2]")[0])
        assert "means" in found


async def test_a_search_can_be_kept_to_a_folder_and_to_tags(open_knowledge: OpenKnowledge):
    async with open_knowledge() as router:
        assert "car.txt" in await expect_success(
            router, "search_knowledge_base", query="evening service in May"
        )
        kept = await expect_success(
            router, "search_knowledge_base", query="evening service in May", folder="garden"
        )
        assert "car.txt" not in kept and "watering.md" in kept
        tagged = await expect_success(router, "search_knowledge_base", query="evening", tags=["#Food"])
        assert "tomatoes.md" in tagged and "watering.md" not in tagged
        inline = await expect_success(router, "search_knowledge_base", query="evening", tags=["summer"])
        assert "watering.md" in inline and "tomatoes.md" not in inline


async def test_what_no_note_says_is_not_found(open_knowledge: OpenKnowledge):
    async with open_knowledge() as router:
        nothing = await expect_success(router, "search_knowledge_base", query="the capital of France")
        assert nothing == "No note says anything about 'the capital of France'."


@proves("B2", "U6")
async def test_a_note_is_read_with_its_front_matter_and_its_links_in_both_directions(
    open_knowledge: OpenKnowledge,
):
    async with open_knowledge() as router:
        text = await expect_success(router, "read_kb_file", path="garden/tomatoes.md")
        assert text.startswith(
            "garden/tomatoes.md · Tomatoes: what worked · tags garden, food · 2026-05-01\n"
        )
        assert "Links to: garden/watering.md, garden/soil.md\n" in text
        assert "Linked from: contexts/kos.md\n" in text
        assert "Linked from: garden/tomatoes.md" in await expect_success(
            router, "read_kb_file", path="garden/soil.md"
        )


@proves("B2")
async def test_a_note_goes_by_its_path_from_outside_its_title_and_its_alias(open_knowledge: OpenKnowledge):
    async with open_knowledge() as router:
        for name in ("notes/garden/tomatoes.md", "tomatoes", "Tomatoes: what worked", "tomato notes"):
            assert "Side shoots" in await expect_success(router, "read_kb_file", path=name)
        assert "There is no note 'potatoes'" in await expect_error(router, "read_kb_file", path="potatoes")


async def test_a_part_of_a_note_can_be_read(open_knowledge: OpenKnowledge):
    async with open_knowledge() as router:
        section = await expect_success(router, "read_kb_file", path="tomatoes", section="pruning")
        assert "Lines 12-19 of 19" in section and "Water them" not in section
        lines = await expect_success(router, "read_kb_file", path="tomatoes", start_line=10, end_line=10)
        assert lines.endswith("It goes on: start_line=11.") and "Water them" in lines
        unknown = await expect_error(router, "read_kb_file", path="tomatoes", section="Harvest")
        assert "There are: Tomatoes: what worked, Pruning." in unknown
        assert "has 19 lines" in await expect_error(router, "read_kb_file", path="tomatoes", start_line=40)


@proves("B2")
async def test_what_a_note_says_about_something_is_those_of_its_passages(open_knowledge: OpenKnowledge):
    async with open_knowledge() as router:
        text = await expect_success(router, "read_kb_file", path="tomatoes", about="pruning")
        assert "garden/tomatoes.md:14-18" in text and "Water them" not in text
        nothing = await expect_success(router, "read_kb_file", path="tomatoes", about="zeppelins")
        assert "It says nothing about 'zeppelins'" in nothing and "Water them" in nothing


@proves("U6")
async def test_a_link_leads_to_the_nearest_note_of_that_name(open_knowledge: OpenKnowledge, notes: Path):
    (notes / "house").mkdir()
    (notes / "house" / "soil.md").write_text("# Soil\n\nUnder the house.\n", encoding="utf-8")
    (notes / "house" / "plan.md").write_text("[[Soil]] and [[garden/soil|beds]]\n", encoding="utf-8")
    (notes / "far.md").write_text("[[soil]] [gone](gone.md)\n", encoding="utf-8")
    async with open_knowledge() as router:
        plan = await expect_success(router, "read_kb_file", path="plan")
        assert "Links to: house/soil.md, garden/soil.md" in plan
        assert "Links to: garden/soil.md\n" in await expect_success(router, "read_kb_file", path="far")


async def test_a_long_note_is_read_in_parts_that_meet(open_knowledge: OpenKnowledge, notes: Path):
    text = "\n".join(f"line {number} " + "x" * 90 for number in range(1, 1001))
    (notes / "long.txt").write_text(text, encoding="utf-8")
    async with open_knowledge() as router:
        beginning = await expect_success(router, "read_kb_file", path="long.txt")
        start = int(beginning.rpartition("start_line=")[2].rstrip("."))
        assert start > 100
        rest = await expect_success(router, "read_kb_file", path="long.txt", start_line=start, end_line=start)
        assert f"line {start} " in rest


@proves("B2")
async def test_folders_are_listed_with_titles_and_problems(open_knowledge: OpenKnowledge, notes: Path):
    (notes / "photo.png").write_bytes(b"\x89PNG\0")
    (notes / "broken.md").write_bytes(b"a\0b")
    async with open_knowledge() as router:
        top = await expect_success(router, "list_kb_directory")
        assert "garden/ (3 notes)" in top and "tomatoes.md" not in top
        assert "photo.png" in top and "not searched" in top
        assert "broken.md" in top and "it is not text" in top
        assert "watering.md · Watering" in await expect_success(
            router, "list_kb_directory", path="notes", depth=2
        )
        assert "no folder 'attic'" in await expect_error(router, "list_kb_directory", path="attic")


@proves("B2")
async def test_the_persons_own_context_is_a_note_with_what_it_links_to_and_searches_for(
    open_knowledge: OpenKnowledge,
):
    async with open_knowledge() as router:
        text = await expect_success(router, "load_kos_context")
        assert "I plan on Sundays." in text
        assert "Water them in the evening" in text
        assert "car.txt:1-3 · found for 'car service'" in text
        assert "Not there: Nowhere." in text


async def test_without_a_written_context_the_first_page_and_the_newest_notes_stand_in(
    open_knowledge: OpenKnowledge, notes: Path
):
    (notes / "contexts" / "kos.md").unlink()
    (notes / "README.md").write_text("# Start here\n\nEverything begins here.\n", encoding="utf-8")
    async with open_knowledge() as router:
        text = await expect_success(router, "load_kos_context")
        assert text.startswith("There is no contexts/kos.md")
        assert text.index("Everything begins here.") < text.index("garden/")


@proves("B2")
async def test_a_context_is_a_bundle_a_topic_or_some_notes_within_a_bound(
    open_knowledge: OpenKnowledge, notes: Path
):
    (notes / "garden" / "soil.md").write_text(
        "# Soil\n\n" + "Compost and more compost. " * 400, encoding="utf-8"
    )
    async with open_knowledge() as router:
        assert "- kos: How I work (2 links)" in await expect_success(router, "load_kb_context")
        assert "I plan on Sundays." in await expect_success(router, "load_kb_context", name="KOS")
        topic = await expect_success(router, "load_kb_context", topic="watering in the evening")
        assert "garden/watering.md" in topic and "Linked with them" in topic
        some = await expect_success(router, "load_kb_context", paths=["soil", "car.txt"], max_tokens=400)
        assert "Compost" in some and "Tyres were changed" in some
        assert count_tokens(some) <= 400
        assert "Contexts there are" in await expect_error(router, "load_kb_context", name="nothing")


async def test_a_folder_that_is_not_there_is_said_with_what_to_do(open_knowledge: OpenKnowledge):
    async with open_knowledge(folder="elsewhere") as router:
        text = await expect_error(router, "search_knowledge_base", query="anything")
        assert "elsewhere is not there" in text and "builtin.knowledge.folder" in text
