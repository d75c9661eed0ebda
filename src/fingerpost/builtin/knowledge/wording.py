"""What the router knows of the six tools beyond their definitions: when to take them, and when not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fingerpost.builtin.knowledge.contexts import MAX_TOKENS

# From the source of these tools: stored knowledge is asked for, general knowledge is not.
_WHEN_NOT: Final = (
    "General knowledge, arithmetic, explanations, jokes, greetings: answer directly",
    "What the conversation already holds",
    "Files outside of the knowledge base, and source code",
)
_OWN: Final = (
    "my notes",
    "notes",
    "note",
    "knowledge base",
    "kb",
    "wiki",
    "vault",
    "journal",
    "second brain",
)


def _build_knowledge(**more: Any) -> Mapping[str, Any]:
    return {"category": "knowledge", "when_not": _WHEN_NOT, "timeout_ms": 60_000} | more


SEARCH_KNOWLEDGE: Final = _build_knowledge(
    priority=70,
    keywords=(
        *_OWN,
        "search my notes",
        "what do my notes say",
        "what did i write",
        "which of my notes",
        "mention",
    ),
    typical_ms=40,
    typical_tokens=1200,
    purpose="Finds passages in the person's own notes",
    when=(
        "The person asks what their notes, documents or knowledge base say about something",
        "The person asks to find, look up or search something they wrote down",
    ),
    examples=(
        "What do my notes say about the tomato beds?",
        "Find my notes on API design patterns",
        "Which of my notes mention the insurance?",
    ),
)
READ_KNOWLEDGE: Final = _build_knowledge(
    priority=60,
    keywords=(*_OWN, "read my note", "open the note", "what does the note say", ".md", "md"),
    typical_ms=10,
    typical_tokens=2000,
    purpose="Reads one note of the person's own, or a section of it",
    when=("The person names one note or document of theirs and wants to know what stands in it",),
    examples=("What does notes/garden.md say about watering?", "Read me my note on the boiler"),
)
LIST_KNOWLEDGE: Final = _build_knowledge(
    priority=50,
    keywords=(*_OWN, "list my notes", "which notes", "notes do i have", "what is in my knowledge base"),
    typical_ms=20,
    typical_tokens=600,
    purpose="Lists notes and folders of the knowledge base",
    when=("The person asks which notes or folders there are",),
    examples=("Which notes do I have about the house?", "List my knowledge base"),
)
OWN_CONTEXT_KNOWLEDGE: Final = _build_knowledge(
    priority=45,
    keywords=("kos", "my context", "knowledge operating system", "how i work", "what am i working on"),
    typical_ms=20,
    typical_tokens=2500,
    max_tokens=MAX_TOKENS + 100,
    purpose="Loads who the person is, how they work and what they are at, from their notes",
    when=("The person asks to load their context, or an answer depends on how they work",),
    examples=("Load my context before we begin", "Load my KOS context"),
)
CONTEXT_KNOWLEDGE: Final = _build_knowledge(
    priority=45,
    keywords=("load context", "context bundle", "named context", "load my notes on", *_OWN),
    typical_ms=40,
    typical_tokens=2500,
    max_tokens=MAX_TOKENS + 100,
    purpose="Loads a named bundle of notes, or all that the notes hold on a topic",
    when=("The person asks to load or take up a bundle of notes, several notes or a topic as background",),
    examples=("Load the context for project atlas", "Which contexts do I have in my knowledge base?"),
)
SYNTHESIZE_KNOWLEDGE: Final = _build_knowledge(
    priority=55,
    keywords=(*_OWN, "summarise my notes", "synthesize my notes", "across my notes", "compare my notes"),
    typical_ms=3000,
    typical_tokens=700,
    timeout_ms=90_000,
    purpose="One answer from several notes, with its sources",
    when=(
        "The person wants a summary, a comparison or a conclusion from several of their notes",
        "The person wants the answer with its sources",
    ),
    examples=(
        "Summarise what my notes say about the move to Lisbon",
        "Across my notes, what have we decided about pricing?",
    ),
)
