"""What servers and tools are called in speech, and which of those names are ordinary words.

A server configured as `github-mcp-server` is called "github", `google_maps` is
called "Google Maps". A name that is an ordinary word (`time`, `fetch`, `memory`)
is only a name when something says so; a brand is one wherever it stands.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from fingerpost.catalog.categories import CATEGORIES
from fingerpost.catalog.words import STOP_WORDS, parse_word_set, split_words, to_singular
from fingerpost.narrow.hebrew.lexicon import LEXICON_FIELDS, read_field_lines

# What people leave out when they speak of a server.
_FILLER_NAME_WORDS: Final = parse_word_set(
    "mcp server servers the official api client connector integration plugin"
)

# Brands among the words of the lexicon and of the categories. All other words there are ordinary.
_BRAND_NAMES: Final = parse_word_set(
    """
    adobe airbnb airtable aliexpress amazon angular apache arxiv asana aws azure bigquery binance
    bing biorxiv bitbucket bitcoin canva chatgpt chrome claude cloudflare coinbase confluence
    datagov discord django docker dropbox duckduckgo ebay elasticsearch ethereum exa facebook figma
    firebase firecrawl firefox flask gcp gemini git github gitlab gmail google grafana hubspot ibm
    ikea imdb instagram intel intuit jenkins jira k8s kafka kubectl kubernetes linkedin linux
    microsoft minecraft miro mongo mongodb mysql nasa netflix nginx nintendo numpy nvidia obsidian
    openai oracle outlook pandas paypal perplexity pinterest playstation playwright pokemon postgres
    postgresql pubmed puppeteer pytorch react reddit redis salesforce samsung selenium sentry shazam
    shopify slack snapchat snowflake solana sony spotify sqlite stripe supabase tavily telegram
    tensorflow terraform tesla tiktok trello tripadvisor twitch twitter uber ubuntu vercel walmart
    waze whatsapp wikipedia wix wordpress xbox youtube zapier zendesk zoom
    """
)
# Brands that are ordinary words too; a capital inside a sentence makes them names.
_ORDINARY_WORDS: Final = parse_word_set(
    """
    apple brave calculator docs everything filesystem linear monday notion orders playground puppet
    segment square teams think desktop commander sequential thinking
    """
)


def get_spoken_name(server: str) -> tuple[str, ...]:
    """The words a server is called by; all of its words when every one of them is a filler."""
    spoken = split_words(server)
    return tuple(word for word in spoken if word not in _FILLER_NAME_WORDS) or spoken


def is_ordinary_name(name: tuple[str, ...]) -> bool:
    """Whether a name would often be said without meaning the server."""
    return all(
        len(word) < 3 or word.isdigit() or not _load_ordinary_words().isdisjoint(_list_roots(word))
        for word in name
    )


def _list_roots(word: str) -> tuple[str, ...]:
    """A word and what it may be a form of: `orders`, `finding`, `located`."""
    return word, to_singular(word), word.removesuffix("ing"), word.removesuffix("ed"), word.removesuffix("er")


@lru_cache(maxsize=1)
def _load_ordinary_words() -> frozenset[str]:
    known = {
        word
        for field in LEXICON_FIELDS
        for line in read_field_lines(field)
        for word in line.lower().split()
        if word.isascii()
    }
    for category in CATEGORIES:
        known |= category.english
    return frozenset((known | STOP_WORDS) - _BRAND_NAMES) | _ORDINARY_WORDS
