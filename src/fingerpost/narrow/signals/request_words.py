"""The words and phrases by which people ask for each of the twelve categories.

They add to the words of `catalog.categories`, which are those of tools: a person
says "am I free on Friday", a tool says `availability`. Hebrew words reach the
English ones through the gloss; the Hebrew here is what has no English twin.
"""

from __future__ import annotations

from typing import Final

from fingerpost.catalog.words import parse_word_set

CATEGORY_WORDS: Final = {
    "files": parse_word_set(
        """
        files folders directories filename desktop downloads rename unzip backup disk attachment txt docx
        xlsx
        """
    ),
    "code": parse_word_set(
        """
        codebase source bug bugs feature test tests compile function class method variable regex python
        javascript typescript java rust golang debug develop developer programming syntax unittest
        dependency package npm pip
        """
    ),
    "system": parse_word_set(
        """
        run restart reboot install uptime memory disk cpu service port network ip ping firewall kubernetes
        helm logs outage latency crash pipeline jenkins build vulnerability scan malware nginx linux
        """
    ),
    "web_search": parse_word_set(
        """
        lookup online latest headline headlines recent trending wikipedia arxiv pubmed paper papers
        article articles publication study scholar topic discover
        """
    ),
    "web_page": parse_word_set(
        """
        website webpage site link links web browse open scroll login submit scrape button captcha
        """
    ),
    "data": parse_word_set(
        """
        rows columns tables records excel average mean median sum correlation regression variance
        dashboard report analyze analyse analytics visualize plot histogram pivot join select insert
        """
    ),
    "communication": parse_word_set(
        """
        write send text tell notify reply forward dm mention announce subject cc comment comments follower
        followers tweet subreddit reddit facebook instagram tiktok newsletter contact contacts
        """
    ),
    "planning": parse_word_set(
        """
        remind reminders book reschedule cancel free busy agenda todo todos tasks meetings deadline due
        plan invite invitation attendees assign assignee priority weekly shift vacation
        """
    ),
    "knowledge": parse_word_set(
        """
        notes remember memorize forget recall docs documentation manual guide explain summarize summary
        page dictionary definition encyclopedia book books library think
        """
    ),
    "media": parse_word_set(
        """
        movie movies film films show series episode actor song songs album artist play listen watch photo
        photos picture pictures draw paint logo poster thumbnail subtitle subtitles podcast game games
        meme gif color font
        """
    ),
    "commerce": parse_word_set(
        """
        pay buy sell purchase cost expensive cheap dollars euros shekel money bank loan mortgage interest
        tax salary budget invoice invoices stocks shares crypto bitcoin ethereum wallet shipping delivery
        shop cart discount ticker portfolio dividend nasdaq forex profit revenue rent insurance amazon
        ebay
        """
    ),
    "time_place": parse_word_set(
        """
        today tomorrow yesterday clock timezone rain snow wind humidity degrees sunny near nearby nearest
        address city country drive walk bus train trains taxi airport airline ticket restaurant
        restaurants cafe museum park parks hiking trip vacation itinerary directions traffic km miles
        latitude longitude sunrise sunset
        """
    ),
}

# Several words that say more together than apart.
CATEGORY_PHRASES: Final = {
    "files": ("my documents", "hard drive", "working directory", "save it as", "save as", "in this folder"),
    "code": (
        "pull request",
        "merge request",
        "code review",
        "source code",
        "unit test",
        "open source",
        "stack trace",
    ),
    "system": ("command line", "environment variable", "load average", "health check", "virtual machine"),
    "web_search": (
        "search the web",
        "search online",
        "look up",
        "google it",
        "find out",
        "on the internet",
        "latest news",
        "web search",
        "current events",
    ),
    "web_page": (
        "web page",
        "landing page",
        "fill in the form",
        "fill out the form",
        "take a screenshot",
        "this url",
    ),
    "data": ("standard deviation", "pivot table", "data set", "open data", "government data", "sql query"),
    "communication": (
        "let them know",
        "get back to",
        "direct message",
        "text message",
        "group chat",
        "social media",
    ),
    "planning": (
        "am i free",
        "set up a meeting",
        "my schedule",
        "my calendar",
        "due date",
        "to do list",
        "next meeting",
        "block time",
    ),
    "knowledge": ("knowledge base", "knowledge graph", "my notes", "step by step", "look in the docs"),
    "media": ("text to speech", "speech to text", "background removal", "video clip", "video game"),
    "commerce": (
        "how much does",
        "exchange rate",
        "stock price",
        "credit card",
        "real estate",
        "market cap",
        "interest rate",
    ),
    "time_place": (
        "what time",
        "time zone",
        "how far",
        "how do i get to",
        "how long does it take",
        "close to me",
        "near me",
        "point of interest",
        "air quality",
        "public transit",
        "sea level",
    ),
}

# Said about anything: they lean, they never decide alone.
WEAK_WORDS: Final = parse_word_set(
    """
        account add analyze answer article ask book call cancel card class contact cost create cycle
        extract feature fetch form frame free function generate guide index insert join list memory open
        order page plan play post project query record report run search select send share show source
        subject study submit summary tag test text think time topic track user value watch web write
        """
)
