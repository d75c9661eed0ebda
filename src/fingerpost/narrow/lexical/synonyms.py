"""Everyday words and the words tools use for the same thing.

A person says "find", a tool says "search"; "book" and "reserve", "erase" and
"delete". Each line is a group of words that often stand for each other in requests
and in tool descriptions, written from general knowledge of APIs, not from any test
set. An arrow reads one way: whoever says "umbrella" may want the weather, but a
weather report is no umbrella. A word may stand in several groups.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from fingerpost.narrow.lexical.stems import stem_word

MUTUAL_SYNONYMS: Final = """
search find lookup locate seek query discover explore
get fetch retrieve obtain read load pull
list show display view browse enumerate
create add new make insert generate produce
delete remove erase clear drop discard purge
update edit modify change alter adjust revise amend
write save store record
send deliver dispatch transmit
book reserve reservation booking schedule
cancel abort revoke void undo
buy purchase order
pay payment checkout charge
check verify validate confirm inspect
compute calculate determine evaluate solve calculator
convert transform translate conversion change
translate translation interpret
compare comparison difference diff versus contrast
start begin launch run execute trigger
stop end terminate halt kill shutdown
open launch visit navigate
download fetch save export
upload import attach
copy duplicate clone replicate
move transfer relocate drag
rename retitle
merge combine join concatenate
split divide separate
share publish post
subscribe subscription follow
notify notification alert remind reminder
recommend suggest recommendation suggestion propose
summarize summary overview digest abstract
analyze analysis examine assess analytics
predict prediction forecast estimate
rate rating review score
rank ranking standing leaderboard top
filter sort
count number total amount quantity
register registration enroll signup
login signin authenticate authentication
assign allocate delegate
approve accept authorize
reject decline deny refuse
submit file apply application
track trace follow monitor watch status
message text chat sms
email mail inbox
call phone telephone dial
contact person people address
meeting appointment event calendar agenda
task todo item
note memo
document doc file
folder directory
picture photo image photograph
video clip movie film
song track music audio
singer artist musician band
book novel title
author writer
article post story news
news headline article latest
website site webpage page url link web
web internet online
link url
picture screenshot capture
code source script program
repository repo git project
issue bug ticket problem
commit change revision
database table sql
row record entry
column field
customer client user account
user member profile account
employee staff worker personnel
company business firm organization corporation
store shop retailer
product item goods merchandise
price cost fee pricing quote
cheap affordable low budget discount
discount coupon deal offer promotion
invoice bill receipt
money cash currency funds
currency exchange forex
stock share equity ticker
crypto cryptocurrency bitcoin coin token
bank account balance
loan mortgage credit
tax vat
weather forecast temperature climate
place location venue spot
location address position coordinates
near nearby around close surrounding
city town
country nation
route direction path way navigation
distance far
trip travel journey vacation holiday tour itinerary
flight plane airline air
airport flight
hotel accommodation lodging stay room
restaurant dining eatery cafe
food meal dish cuisine
recipe cook cooking meal
drink beverage cocktail
car vehicle automobile auto
taxi cab ride
train railway rail
doctor physician medical health
medicine drug medication
illness disease condition symptom
job career position vacancy employment
resume cv
school university college education course
game match fixture
team club squad
player athlete
sport league
house home property apartment real estate
word term vocabulary
meaning definition define dictionary
language linguistic
date day time
timezone zone
birthday birth
area surface region
size dimension
speed velocity
weight mass
picture draw paint
chart graph plot diagram visualize
average mean
quote quotation saying
joke humor funny
fact trivia
random arbitrary
history past historical previous
current now present live real-time latest today
latest recent newest new
list all every
detail information info about data
similar related like alternative
popular trending trend hot top
error failure fault problem
log record history
permission access role right
setting configuration preference option config
password credential secret
server host machine
network connection ip
branch version
deploy release publish
container docker image
cluster kubernetes pod
click press tap
type enter fill input
form fill field
shell terminal command bash
"""

ONE_WAY_SYNONYMS: Final = """
umbrella rain sunny snow cold -> weather forecast
translate -> language
spend spent -> expense cost budget
eat hungry dinner lunch breakfast -> restaurant food meal recipe
ingredient -> recipe food
fly flying -> flight
drive driving -> route direction car
walk -> route direction
listen -> music song
watch -> video movie
wake -> alarm
ill sick -> health medical
euro dollar usd eur gbp yen -> currency exchange
kilometer mile meter feet celsius fahrenheit pound kilogram -> convert unit
nasdaq dow -> stock market
commit push pull merge -> git repository
slack discord telegram whatsapp -> message channel
jira -> issue ticket
png jpg jpeg gif -> image
mp3 wav -> audio
mp4 youtube -> video
pdf docx txt csv xlsx json -> file document
csv xlsx excel spreadsheet -> sheet table
"""

MAX_SYNONYMS: Final = 24  # related terms of one term, at most


@cache
def build_synonym_map() -> dict[str, tuple[str, ...]]:
    """For each stem, the stems that may stand for it."""
    found: dict[str, dict[str, None]] = {}
    for line in MUTUAL_SYNONYMS.strip().splitlines():
        group = tuple(dict.fromkeys(map(stem_word, line.split())))
        for word in group:
            found.setdefault(word, {}).update((other, None) for other in group if other != word)
    for line in ONE_WAY_SYNONYMS.strip().splitlines():
        said, _, meant = line.partition("->")
        others = dict.fromkeys(map(stem_word, meant.split()))
        for word in map(stem_word, said.split()):
            found.setdefault(word, {}).update(others)
    return {word: tuple(others)[:MAX_SYNONYMS] for word, others in found.items()}
