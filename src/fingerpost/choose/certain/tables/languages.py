"""Languages and currencies by the names people use."""

from __future__ import annotations

from typing import Final

_LANGUAGES: Final = """
en english אנגלית
he hebrew עברית
fr french צרפתית
de german גרמנית
es spanish ספרדית
it italian איטלקית
pt portuguese פורטוגזית
nl dutch הולנדית
ru russian רוסית
uk ukrainian אוקראינית
pl polish פולנית
cs czech צ'כית
sk slovak סלובקית
hu hungarian הונגרית
ro romanian רומנית
bg bulgarian בולגרית
el greek יוונית
tr turkish טורקית
ar arabic ערבית
fa persian farsi פרסית
hi hindi הינדי
bn bengali בנגלית
ur urdu אורדו
zh chinese mandarin סינית
ja japanese יפנית
ko korean קוריאנית
th thai תאית
vi vietnamese וייטנאמית
id indonesian אינדונזית
sv swedish שוודית
da danish דנית
no norwegian נורווגית
fi finnish פינית
et estonian אסטונית
lv latvian לטבית
lt lithuanian ליטאית
am amharic אמהרית
ka georgian גאורגית
hy armenian ארמנית
la latin לטינית
yi yiddish יידיש
"""
LANGUAGES: Final = {
    name: line.split()[0] for line in _LANGUAGES.strip().splitlines() for name in line.split()[1:]
}
ENGLISH_NAMES: Final = {line.split()[0]: line.split()[1] for line in _LANGUAGES.strip().splitlines()}

CURRENCIES: Final = frozenset(
    [
        "USD",
        "EUR",
        "GBP",
        "JPY",
        "ILS",
        "CHF",
        "CAD",
        "AUD",
        "NZD",
        "CNY",
        "INR",
        "KRW",
        "SEK",
        "NOK",
        "DKK",
        "PLN",
        "CZK",
        "HUF",
        "RON",
        "TRY",
        "BRL",
        "MXN",
        "ZAR",
        "SGD",
        "HKD",
        "THB",
        "AED",
        "SAR",
        "EGP",
        "JOD",
        "BTC",
        "ETH",
    ]
)
# Only words that mean one currency: a dollar or a pound may be several countries'.
CURRENCY_WORDS: Final = {
    "euro": "EUR",
    "euros": "EUR",
    "shekel": "ILS",
    "shekels": "ILS",
    "yen": "JPY",
    "zloty": "PLN",
    "bitcoin": "BTC",
    "יורו": "EUR",
    "אירו": "EUR",
    "שקל": "ILS",
    "שקלים": "ILS",
    "ין": "JPY",
}
