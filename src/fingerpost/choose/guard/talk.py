"""Talk about tool syntax, as against its use.

Somebody who asks how a Hermes tool call looks must get an answer with one in it. Such
talk names a syntax, and says it is about form: how it looks, its format, its parser.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST_LOOK: Final = 8_000
# Words that mean tool syntax by themselves, and words that mean it only beside others: Hermes is also
# a god, React a library, Mistral a wind.
_SUBJECT: Final = re.compile(
    r"tool[ _-]?(?:calls?|use|calling)\b|function[ _-]?call|chat ?ml\b|special tokens?|chat templates?"
    r"|control tokens?"
    r"|stop tokens?|end[- ]of[- ](?:text|turn|sequence)|reasoning tags?|think(?:ing)? (?:tags?|blocks?)"
    r"|\[/?(?:TOOL_\w+|INST|AVAILABLE_TOOLS)\]|<\|[\w /]{1,60}\|>|</?(?:tool|function)_?(?:calls?|use"
    r"|response)\b|</?think\b|<function=|<invoke\b"
    r"|קריא(?:ה|ת|ות)\s+(?:ל)?(?:כלי|פונקצי)|הפעלת\s+כלי|טוקנים?\s+מיוחד|תבנית\s+(?:ה)?(?:שיחה|צ׳אט|צ'אט)",
    re.IGNORECASE,
)
_FORM: Final = re.compile(
    r"\b(?:syntax(?:es)?|formats?|formatted|templates?|looks? like|look|markup|parsers?|parsing|parse"
    r"|regex\w*|grammar"
    r"|specifications?|spec|tokenizers?|tokens?|tags?|delimiters?|markers?|schema|stands? for"
    r"|what (?:is|does|are)|mean|explain\w*"
    r"|difference|documentation|docs|tutorial|blog post|unit tests?|fixture|code review|review|examples?"
    r"|show me|how (?:do|does|are|is|would|to)|wrap(?:s|ped)?|emit(?:s|ted)?|encod\w+|represent\w*"
    r"|strip\w*)\b"
    r"|תחביר|פורמט|תבנית|נרא(?:ה|ית|ות|ים)|מבנה|דוגמ|איך|כיצד|מה\s+(?:זה|פירוש|ההבדל|אומר)|הסבר|תסביר"
    r"|פרסר|ביטוי רגולרי|תג(?:ים|ית|יות)?\b",
    re.IGNORECASE,
)
_MODEL: Final = re.compile(
    r"\b(?:qwen|mistral|llama|deepseek|gpt-oss|harmony|gemma|functionary|command[- ]r|granite|phi-?\d"
    r"|kimi|glm|hermes|react"
    r"|claude|lfm2?|internlm|minimax)\b",
    re.IGNORECASE,
)
_STRICT_FORM: Final = re.compile(
    r"\b(?:syntax|format|template|markup|tokens?|tags?|delimiters?|parser?|parsing|looks? like|look"
    r"|wraps?|emits?|writes?)\b|תחביר|פורמט|תבנית|נרא(?:ה|ית)",
    re.IGNORECASE,
)
_CALLING: Final = re.compile(
    r"\b(?:tools?|functions?|calls?|agents?|prompts?|tokens?|chat)\b|כלי|פונקצי|קריא", re.IGNORECASE
)


def about_syntax(text: str) -> bool:
    """Whether this text speaks of tool syntax as something to look at."""
    look = text[:LONGEST_LOOK]
    if _SUBJECT.search(look):
        return _FORM.search(look) is not None
    return all(pattern.search(look) for pattern in (_MODEL, _STRICT_FORM, _CALLING))
