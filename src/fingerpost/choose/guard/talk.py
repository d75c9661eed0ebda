"""Talk about tool syntax and data, as against the use of syntax.

Somebody who asks how a Hermes tool call looks must get an answer with one in it. Such
talk names a syntax, and says it is about form: how it looks, its format, its parser. A person
who asks for JSON or code must get it, also where it has the shape of a call.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.vocabulary import split_words

MAX_TALK_LENGTH: Final = 8_000
# Words that mean tool syntax by themselves, and words that mean it only beside others: Hermes is also
# a god, React a library, Mistral a wind.
_SYNTAX_SUBJECT: Final = re.compile(
    r"tool[ _-]?(?:calls?|use|calling)\b|function[ _-]?call|chat ?ml\b|special tokens?|chat templates?"
    r"|control tokens?"
    r"|stop tokens?|end[- ]of[- ](?:text|turn|sequence)|reasoning tags?|think(?:ing)? (?:tags?|blocks?)"
    r"|\[/?(?:TOOL_\w+|INST|AVAILABLE_TOOLS)\]|<\|[\w /]{1,60}\|>|</?(?:tool|function)_?(?:calls?|use"
    r"|response)\b|</?think\b|<function=|<invoke\b"
    r"|קריא(?:ה|ת|ות)\s+(?:ל)?(?:כלי|פונקצי)|הפעלת\s+כלי|טוקנים?\s+מיוחד|תבנית\s+(?:ה)?(?:שיחה|צ׳אט|צ'אט)",
    re.IGNORECASE,
)
_SYNTAX_FORM: Final = re.compile(
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
_MODEL_NAME: Final = re.compile(
    r"\b(?:qwen|mistral|llama|deepseek|gpt-oss|harmony|gemma|functionary|command[- ]r|granite|phi-?\d"
    r"|kimi|glm|hermes|react"
    r"|claude|lfm2?|internlm|minimax)\b",
    re.IGNORECASE,
)
_STRICT_SYNTAX_FORM: Final = re.compile(
    r"\b(?:syntax|format|template|markup|tokens?|tags?|delimiters?|parser?|parsing|looks? like|look"
    r"|wraps?|emits?|writes?)\b|תחביר|פורמט|תבנית|נרא(?:ה|ית)",
    re.IGNORECASE,
)
_CALLING_PHRASE: Final = re.compile(
    r"\b(?:tools?|functions?|calls?|agents?|prompts?|tokens?|chat)\b|כלי|פונקצי|קריא", re.IGNORECASE
)


def is_about_syntax(text: str) -> bool:
    """Whether this text speaks of tool syntax as something to look at."""
    look = text[:MAX_TALK_LENGTH]
    if _SYNTAX_SUBJECT.search(look):
        return _SYNTAX_FORM.search(look) is not None
    return all(pattern.search(look) for pattern in (_MODEL_NAME, _STRICT_SYNTAX_FORM, _CALLING_PHRASE))


_FORMAT_LANGUAGES: Final = (
    r"python|java(?:script)?|typescript|node(?:\.?js)?|golang|rust|kotlin|swift|c\+\+|c#|php|ruby|perl|bash|powershell"
    r"|pandas|numpy|django|react|sql"
)
_DATA_WORD_PATTERN: Final = (
    r"json\w*|ya?ml|xml|toml|csv|html|code|codes|snippets?|scripts?|regex\w*|schemas?|payloads?|curl"
    r"|api|apis|endpoints?|webhooks?|config\w*|manifests?|templates?|pars(?:e|es|er|ing)|serial\w+|deserial\w+"
    r"|dicts?|dictionar(?:y|ies)|struct\w*|syntax|markdown|docstrings?|unit tests?|fixtures?"
    r"|mock\w*|mcp|openapi|repls?|interpreter|shell"
)
_DATA_WANTED: Final = re.compile(
    rf"\b(?:{_DATA_WORD_PATTERN}|{_FORMAT_LANGUAGES}|functions?|examples?|samples?|formats?|programming|debug\w*|beispiel\w*|skript\w*"
    r"|exemples?|ejemplos?|código|esempio|exemplo)\b"
    r"|\w\(\)|קוד|סקריפט|פונקצי|דוגמ|תבנית|ג׳ייסון|ג'ייסון|פורמט",
    re.IGNORECASE,
)
_DATA_WORDS: Final = split_words(
    "json yaml yml xml toml csv html code codes snippet snippets script scripts schema schemas"
    " payload payloads curl"
    " api apis endpoint endpoints webhook webhooks config configuration configure manifest manifests template"
    " templates parse parser parsing dict dictionary struct structure syntax markdown mock mcp"
    " openapi example"
    " examples eg format formats formatted follows object objects body bodies response"
    " responses request requests"
    " file files record records log logs entry entries return returns contain contains define"
    " defined definition"
    " declare declaration wrote write says type prompt sent printed output like looks"
    " דוגמה דוגמא לדוגמה הקובץ קובץ פורמט נראה נראית"
    " תבנית"
)
_TALK_WORD: Final = re.compile(r"\w+")
_INTENTION: Final = re.compile(
    r"\b(?:tool|function|api)[ _-]?(?:calls?|use|requests?|invocations?)\b"
    r"|\b(?:let me|i(?:'|’)?ll|i will|i (?:need|have) to|i am going to|i(?:'|’)?m going to|calling"
    r"|one moment|checking)\b"
    r"|קריא(?:ה|ת)\s+(?:ל)?כלי",
    re.IGNORECASE,
)
_LOOK_BACK_LENGTH: Final = 240


def is_asking_for_data(request: str) -> bool:
    """Whether this request asks for data or code, so that a value with the shape of a call may be content."""
    return _DATA_WANTED.search(request[:MAX_TALK_LENGTH]) is not None


_HOW_TO_QUESTION: Final = re.compile(
    r"\bhow (?:do|can|could|would|should) (?:i|you|we|one)\b|\bhow to\b|\bwhat does \w+(?:_\w+)+ "
    r"|(?<!\w)(?:איך|כיצד)(?!\w)",
    re.IGNORECASE,
)


def is_asking_how(request: str) -> bool:
    """Whether this request asks how something is done, so that lines of code may be what is explained."""
    return _HOW_TO_QUESTION.search(request[:MAX_TALK_LENGTH]) is not None


def is_announcing_call(before: str) -> bool:
    """Whether the text that ends here says that something is about to be done."""
    return _INTENTION.search(before[-_LOOK_BACK_LENGTH:]) is not None


def is_introducing_data(before: str) -> bool:
    """Whether the text that ends here announces data or code, and not a call."""
    look = before[-_LOOK_BACK_LENGTH:]
    introduced = not _DATA_WORDS.isdisjoint(_TALK_WORD.findall(look.casefold()))
    return introduced and _INTENTION.search(look) is None


MAX_ANNOUNCEMENT_LENGTH: Final = 240
_BETWEEN_SENTENCES: Final = re.compile(r"(?<=[.!?…])\s+|\n+")
_COURTESY_WORDS: Final = re.compile(
    r"(?:sure(?: thing)?|of course|certainly|absolutely|ok(?:ay)?|alright|all right|got it|no problem"
    r"|right away|understood|(?:great|good) question|here (?:you go|it is|we go)|thanks|thank you"
    r"|בטח|בוודאי|ודאי|כמובן|בסדר|אין בעיה|מיד|הנה)\W*",
    re.IGNORECASE,
)
_LOOKING_PATTERN: Final = (
    r"(?:check|look|search|call|fetch|query|retriev|us|runn?|invok|consult|pull|get)(?:e|t?ing)?"
)
_SOON_PHRASE: Final = re.compile(
    r"\blet me\b(?! (?:know|explain|be\b))|\blet(?:'|’)?s\b|\bi(?:(?:'|’)?ll| will)\b(?! (?:be|not|never)\b)"
    rf"|\bi(?:(?:'|’)?m| am) (?:going to\b|(?:now )?{_LOOKING_PATTERN}\b)|\bi "
    rf"(?:need|have) to {_LOOKING_PATTERN}\b"
    r"|\ballow me to\b|\b(?:one|a) (?:moment|second|sec)\b|\bhold on\b|\bplease wait\b|\bbear with me\b"
    rf"|\A\W*(?:now |currently )?(?=\w+ing\b){_LOOKING_PATTERN}\b"
    r"|רגע|(?:תן|תני|תנו) לי|בודקת?\b|מחפשת?\b|אבדוק|אחפש|נבדוק|אני (?:קורא|מפעיל)",
    re.IGNORECASE,
)


def is_announcement(text: str) -> bool:
    """Whether a text only leads in to something that does not follow: "Sure. Let me check."."""
    said = text.strip()
    return 0 < len(said) <= MAX_ANNOUNCEMENT_LENGTH and all(
        map(_is_announcing_sentence, _BETWEEN_SENTENCES.split(said))
    )


def _is_announcing_sentence(sentence: str) -> bool:
    said = sentence.strip("*_ \t")
    if said.endswith((":", "…", "...")):
        return True
    asks = said.endswith("?")
    return not asks and bool(_SOON_PHRASE.search(said) or _COURTESY_WORDS.fullmatch(said))
