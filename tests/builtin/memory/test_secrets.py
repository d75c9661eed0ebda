"""What is taken for a secret, and what is not."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fingerpost.builtin.memory import find_secret
from tests.kit.tables import table
from tests.requirements import proves

EXAMPLES = settings(max_examples=60, deadline=None)

words = st.sampled_from("the meeting about budget on Monday likes tea and 2026 plan for Oslo".split())  # noqa: SIM905
sentences = st.lists(words, max_size=8).map(" ".join)
starts = st.sampled_from(["4", "51", "2221", "34", "6011"])


def card_number(start: str, rest: str) -> str:
    """A number as card numbers are: the last digit makes the sum right."""
    body = (start + rest)[:15]
    digits = [int(sign) for sign in reversed(body)]
    total = sum(digit * 2 - 9 * (digit > 4) if at % 2 == 0 else digit for at, digit in enumerate(digits))
    return f"{body}{-total % 10}"


@proves("U9")
@EXAMPLES
@given(
    before=sentences, after=sentences, start=starts,
    rest=st.text("0123456789", min_size=14, max_size=14), gap=st.sampled_from(["", " ", "-"]),
)  # fmt: skip
def test_a_card_number_is_seen_however_it_is_written(
    before: str, after: str, start: str, rest: str, gap: str
) -> None:
    number = card_number(start, rest)
    written = gap.join(number[at : at + 4] for at in range(0, 16, 4))
    assert find_secret(f"{before} {written} {after}") is not None
    wrong = f"{number[:-1]}{(int(number[-1]) + 1) % 10}"
    # Not None: its digits may hold a secret that a test before this one has registered.
    assert find_secret(f"{before} number {wrong}") != "a card number"


@proves("U9")
@EXAMPLES
@given(
    before=sentences,
    name=st.sampled_from(["password", "Passwort", "api key", "PIN", "access token", "סיסמה", "contraseña"]),
    sign=st.sampled_from([": ", " =", " is ", ": \""]),
    value=st.text("abcdefgh0123456789!#", min_size=5, max_size=20),
)  # fmt: skip
def test_a_named_secret_is_seen(before: str, name: str, sign: str, value: str) -> None:
    assume(sign != " is " or not value.rstrip("!").isalpha())  # "the password is wrong!"
    assert find_secret(f"{before} my {name} for the router{sign}{value}") is not None
    assert find_secret(f"{before} {name}{sign}{value} and more") is not None


@proves("U9")
@table(
    "text",
    [
        "הסיסמה של הראוטר היא hunter2!",
        "הסיסמה שלי היא חתול123",
        "אמרתי לו שהסיסמה היא hunter2",
        "סיסמת הראוטר היא hunter2",
        "הקוד של הכספת הוא 4711",
        "קוד הכניסה לבניין: 4711",
        "the code of the safe is 4711",
        "The code for the front door is 12-34-56.",
        "the garage door code is 9911",
        "Our alarm's code: 0815",
        "the combination of my bike lock was 4711",
        "PIN 4711 for the card",
        "the code to unlock my phone is 123456, said Dana",
    ],
)
def test_codes_and_hebrew_passwords_are_seen(text: str) -> None:
    assert find_secret(text) == "a password or code"
    assert find_secret(f"Remember this: {text}") == "a password or code"


@proves("U9")
@EXAMPLES
@given(
    prefix=st.text("הובלכמש", max_size=2),
    value=st.text("abcdefgh0123456789", min_size=5, max_size=20).filter(lambda text: not text.isalpha()),
)
def test_a_password_is_one_behind_any_hebrew_prefix(prefix: str, value: str) -> None:
    assert find_secret(f"{prefix}סיסמה של הראוטר היא {value}") is not None


@table(
    "text",
    [
        "the error code is 404",
        "the error code of the door is 404",
        "My zip code is 10115",
        "the country code is 972",
        "the area code for my phone is 0301",
        "the status code for the account is 404",
        "The code is 300 lines long",
        "I keep the code in the safe",
        "My phone says the code is 4711",
        "the door code is easy to remember",
        "The door opens at 1200",
        "pin 1000 notes to the board",
        "הסיסמה הוחלפה אתמול",
        "הקוד הוא 300 שורות",
        "I changed my password last week",
        "The password is wrong, says the page",
        "Dana keeps passwords in the safe",
        "The pin board is in the kitchen",
        "Order 4111111111111112 arrives on Monday",
        "The project secret santa is on 12 December",
        "Call me at +49 30 1234567",
        "My favourite token of appreciation is tea",
        "pkt_01a1e072cb45773eada52a0945d99726 was about the budget",
    ],
)
def test_talk_about_such_things_is_no_secret(text: str) -> None:
    assert find_secret(text) is None


@EXAMPLES
@given(text=st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    assert find_secret(text) is None or find_secret(text)
