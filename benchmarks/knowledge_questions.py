"""Questions on Python's own documentation, in the words of a person who does not know its terms.

Each with the notes that answer it: any of them counts. Written before anything was measured (two were
replaced whose notes Python does not carry); the words a note is called by are avoided.
"""

from __future__ import annotations

from typing import Final

QUESTIONS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    # modules
    ("how do I see what changed between two versions of a text", ("library/difflib.md",)),
    ("make a temporary directory that is removed afterwards", ("library/tempfile.md",)),
    ("read a spreadsheet exported as comma separated text", ("library/csv.md",)),
    ("turn an object into bytes and load it again later", ("library/pickle.md",)),
    (
        "keep a key value database in a file that works like a dictionary",
        ("library/shelve.md", "library/dbm.md", "library/dbm.dumb.md"),
    ),
    ("average, median and standard deviation of a list of numbers", ("library/statistics.md",)),
    ("are these two files or folders the same", ("library/filecmp.md",)),
    ("exact ratios such as one third", ("library/fractions.md",)),
    ("pick a winner by chance", ("library/random.md",)),
    ("generate tokens for password resets that nobody can guess", ("library/secrets.md",)),
    (
        "find files whose names match a wildcard",
        ("library/glob.md", "library/fnmatch.md", "library/pathlib.md"),
    ),
    ("copy a whole folder tree to another place", ("library/shutil.md",)),
    (
        "parse options given on the command line of my script",
        ("library/argparse.md", "library/optparse.md", "library/getopt.md"),
    ),
    ("ask for a passphrase without showing what is typed", ("library/getpass.md",)),
    ("run another program and capture what it prints", ("library/subprocess.md",)),
    (
        "keep the n largest elements while data streams in, a priority queue",
        ("library/heapq.md", "library/queue.md"),
    ),
    ("insert into an already sorted list quickly", ("library/bisect.md",)),
    ("remember the results of an expensive function so it is not computed twice", ("library/functools.md",)),
    ("measure how long small snippets of code take", ("library/timeit.md",)),
    (
        "which functions of my program use up most of the processor",
        ("library/profile.md", "library/cProfile.md", "library/pstats.md"),
    ),
    ("find out which lines allocate the most memory", ("library/tracemalloc.md",)),
    ("write messages of a program to a rotating file", ("library/logging.handlers.md", "library/logging.md")),
    (
        "compress a directory into a single archive people on Windows can open",
        ("library/zipfile.md", "library/shutil.md"),
    ),
    ("open tarballs", ("library/tarfile.md",)),
    ("squeeze data with the same algorithm as gunzip", ("library/gzip.md",)),
    ("fetch a web page", ("library/urllib.request.md", "library/http.client.md")),
    ("serve the current folder to a browser for testing", ("library/http.server.md",)),
    ("send an e-mail through my provider", ("library/smtplib.md",)),
    (
        "look into my mailbox on the mail server",
        ("library/imaplib.md", "library/poplib.md", "library/mailbox.md"),
    ),
    ("take an address apart into host, path and query", ("library/urllib.parse.md",)),
    ("encode binary data so that it survives in plain letters", ("library/base64.md", "library/quopri.md")),
    ("check that a download was not tampered with by its digest", ("library/hashlib.md", "library/hmac.md")),
    ("a lightweight database in a single file with SQL", ("library/sqlite3.md",)),
    ("read settings from an ini file", ("library/configparser.md",)),
    ("break long lines of prose at eighty columns", ("library/textwrap.md",)),
    ("show nested data nicely indented on the screen", ("library/pprint.md",)),
    ("print the month with its weeks as a grid", ("library/calendar.md",)),
    ("what time is it in another part of the world, daylight saving included", ("library/datetime.md",)),
    (
        "run blocking work in a pool of workers and collect the futures",
        (
            "library/concurrent.futures.md",
            "library/concurrent.futures.thread.md",
            "library/concurrent.futures.process.md",
            "library/multiprocessing.pool.md",
        ),
    ),
    (
        "use all processor cores despite the global interpreter lock",
        ("library/concurrent.futures.process.md", "library/multiprocessing.pool.md"),
    ),
    ("two threads must not touch the same variable at once", ("library/threading.md",)),
    (
        "step through my program line by line to find a bug",
        ("library/pdb.md", "library/bdb.md", "topics/debugger.txt"),
    ),
    ("replace a collaborator with a fake while testing", ("library/unittest.mock.md",)),
    ("examples in documentation that are checked automatically", ("library/doctest.md",)),
    ("unique identifiers that never collide across machines", ("library/uuid.md",)),
    ("from red, green and blue to hue and saturation", ("library/colorsys.md",)),
    ("named constants that belong together, like colours or weekdays", ("library/enum.md",)),
    ("classes that are mostly fields, without writing the constructor", ("library/dataclasses.md",)),
    ("clean up several resources whose number is known only while running", ("library/contextlib.md",)),
    ("see which operating system and processor this is", ("library/platform.md",)),
    # the language
    (
        "what happens when I leave a block that holds a file open",
        ("topics/with.txt", "topics/context-managers.txt", "topics/compound.txt", "library/contextlib.md"),
    ),
    (
        "leave a loop early",
        (
            "topics/break.txt",
            "topics/while.txt",
            "topics/for.txt",
            "topics/else.txt",
            "topics/compound.txt",
            "topics/continue.txt",
        ),
    ),
    ("small functions without a name", ("topics/lambda.txt",)),
    (
        "how are objects compared, smaller, equal, identical",
        (
            "topics/comparisons.txt",
            "topics/in.txt",
            "topics/customization.txt",
            "topics/specialnames.txt",
            "topics/booleans.txt",
        ),
    ),
    ("which values count as false in a condition", ("topics/truth.txt", "topics/booleans.txt")),
    (
        "change a variable of the enclosing function",
        ("topics/nonlocal.txt", "topics/naming.txt", "topics/execmodel.txt", "topics/dynamic-features.txt"),
    ),
    ("padding and thousands separators when printing numbers", ("topics/formatstrings.txt",)),
    (
        "functions that hand out one value at a time and pause in between",
        ("topics/yield.txt", "topics/typesfunctions.txt", "topics/types.txt"),
    ),
    (
        "catch errors and do something afterwards in any case",
        ("topics/try.txt", "topics/exceptions.txt", "topics/compound.txt", "topics/raise.txt"),
    ),
    (
        "take every second element of a list, backwards",
        (
            "topics/slicings.txt",
            "topics/typesseq.txt",
            "topics/subscriptions.txt",
            "topics/sequence-types.txt",
            "topics/typesseq-mutable.txt",
            "topics/lists.txt",
        ),
    ),
)

# What people look for by a name they remember.
NAMES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = tuple(
    (asked, (f"library/{module}.md",))
    for asked, module in (
        ("get_close_matches cutoff", "difflib"),
        ("mkdtemp", "tempfile"),
        ("RotatingFileHandler maxBytes", "logging.handlers"),
        ("PriorityQueue", "queue"),
        ("Popen communicate", "subprocess"),
        ("insort", "bisect"),
        ("lru_cache", "functools"),
        ("ExitStack", "contextlib"),
        ("pstdev", "statistics"),
        ("urlsplit", "urllib.parse"),
        ("SimpleHTTPRequestHandler", "http.server"),
        ("starttls", "smtplib"),
        ("MagicMock", "unittest.mock"),
        ("uuid5 namespace", "uuid"),
        ("TextWrapper initial_indent", "textwrap"),
        ("copytree ignore", "shutil"),
        ("IntFlag", "enum"),
        ("ThreadPoolExecutor", "concurrent.futures.thread"),
        ("token_urlsafe", "secrets"),
        ("formatmonth", "calendar"),
        ("BoundedSemaphore", "threading"),
        ("TarInfo", "tarfile"),
    )
)
