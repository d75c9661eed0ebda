"""Names that mean the same parameter, and names that never do.

Written in the form `names.canonical` gives, joined: `maxresult` is `max_results`,
`maxResults` and `MaxResult`. A word may stand in several groups; when that leaves
two parameters to choose from, nothing is renamed.
"""

from __future__ import annotations

from typing import Final

from fingerpost.catalog.words import parse_word_set

ABBREVIATIONS: Final = {
    "addr": "address", "amt": "amount", "avg": "average", "cat": "category", "cmd": "command",
    "config": "configuration", "conf": "configuration", "curr": "currency", "db": "database",
    "desc": "description", "descr": "description", "dept": "department", "dest": "destination",
    "dst": "destination", "dir": "directory", "folder": "directory", "dob": "birthdate",
    "env": "environment", "expr": "expression", "freq": "frequency", "img": "image", "pic": "picture",
    "identifier": "id", "ident": "id", "lang": "language", "lat": "latitude", "lng": "longitude",
    "lon": "longitude", "long": "longitude", "loc": "location", "max": "maximum", "min": "minimum",
    "msg": "message", "nbr": "number", "no": "number", "num": "number", "org": "organization",
    "organisation": "organization", "param": "parameter", "pct": "percent", "percentage": "percent",
    "pos": "position", "prev": "previous", "qty": "quantity", "ref": "reference", "repo": "repository",
    "req": "request", "res": "result", "seq": "sequence", "src": "source", "str": "string",
    "temp": "temperature", "tel": "phone", "telephone": "phone", "txt": "text", "tz": "timezone",
    "uri": "url", "usr": "user", "yr": "year", "dist": "distance", "func": "function", "fn": "function",
    "val": "value", "vol": "volume", "colour": "color", "centre": "center", "info": "information",
    "stat": "statistic", "auth": "authentication", "pwd": "password", "passwd": "password",
    "char": "character", "fmt": "format", "doc": "document", "attr": "attribute",
    "attachement": "attachment", "catagory": "category", "calender": "calendar",
}  # fmt: skip

_GROUP_LINES: Final = """
    path file filename filepath fullpath filelocation pathname fileuri targetfile documentpath;
    path directory directorypath directoryname directorylocation root targetdirectory;
    query q search searchquery searchterm searchtext searchstring keyword term question prompt
        phrase querystring querytext searchkeyword userquery text searchphrase;
    query sql sqlquery statement sqlstatement;
    limit count maximumresult maximumcount maximumitem topk topn n k numberresult numberofresult
        resultlimit resultcount resultnumber pagesize perpage maximum numberitem numberofitem
        numberrow maximumrow itemcount top maximumnumber maximumnumberofresult maximumreturn
        howmany;
    offset skip startindex startat startoffset;
    page pagenumber pageno;
    url link href webaddress website pageurl targeturl websiteurl weburl webpage address weblink
        siteurl;
    location city place cityname locationname placename town area;
    location address place;
    location region area;
    message text body content messagetext messagebody messagecontent;
    content text body data filecontent textcontent input;
    content document;
    title subject headline heading topic;
    title summary eventtitle;
    title name;
    topic subject theme;
    description body detail text note;
    to recipient receiver toemail recipientemail emailto toaddress sendto recipientaddress;
    from sender fromemail senderemail emailfrom fromaddress;
    startdate datefrom fromdate begindate startingdate since startday datestart;
    enddate dateto todate finishdate endingdate until endday dateend;
    starttime timefrom fromtime begintime timestart;
    endtime timeto totime finishtime timeend;
    checkin checkindate arrivaldate;
    checkout checkoutdate departuredate;
    command shellcommand commandline bashcommand;
    code script source sourcecode program snippet codesnippet;
    language languagecode;
    username user login userhandle handle accountname userlogin;
    repository repositoryname project;
    branch branchname;
    operation action op method verb operationtype actiontype;
    unit unitofmeasure measurementunit unitsystem unittype;
    format outputformat responseformat;
    amount value sum total;
    quantity count numberofitem;
    amount quantity;
    expression formula equation calculation mathexpression;
    timezone timezonename zone;
    fromcurrency sourcecurrency basecurrency currencyfrom;
    tocurrency targetcurrency destinationcurrency currencyto;
    sourcelanguage fromlanguage languagefrom inputlanguage originallanguage;
    targetlanguage tolanguage languageto outputlanguage destinationlanguage;
    origin from source departure startlocation startinglocation origincity departurecity fromcity
        fromlocation startpoint startingpoint originlocation departurelocation;
    destination to target arrival endlocation destinationcity arrivalcity tocity tolocation endpoint
        endingpoint destinationlocation arrivallocation;
    source sourcepath from frompath;
    destination destinationpath to topath target targetpath;
    email emailaddress mail mailaddress;
    phone phonenumber mobile mobilenumber;
    zip zipcode postalcode postcode;
    country countryname nation;
    state province statename;
    userid uid;
    date day ondate;
    team teamname club;
    function functionexpression;
    number n;
    number value;
    gender sex;
    type kind;
    category genre;
    tag label;
    data payload body;
    oldtext oldstring search find searchfor;
    newtext newstring replacement replace replacewith;
    ticker symbol stocksymbol stock tickersymbol stockticker;
    company companyname firm business;
    person personname fullname name;
    artist artistname singer;
    restaurant restaurantname;
    movie moviename movietitle film filmname filmtitle;
    book bookname booktitle;
    song songname songtitle track trackname tracktitle;
    product productname item itemname;
    sort sortby order orderby sortorder sortfield;
    color colorname;
    weight mass;
    id uid uuid;
    interestrate rate annualrate;
    price cost;
    birthdate dateofbirth birthday;
    rating score star;
    duration length;
    velocity speed;
    initialvelocity initialspeed startvelocity;
    finalvelocity finalspeed endvelocity;
    acceleration accelerationrate;
    principal principalamount initialamount investmentamount;
    year yearnumber;
    day numberday numberofday daycount;
    guest numberguest numberofguest guestcount partysize numberofperson numberofpeople people
        person;
    adult numberadult numberofadult adultcount;
    child numberchild numberofchild childcount children numberofchildren;
    ticket numberticket numberofticket ticketcount;
    seat numberseat numberofseat seatcount;
    room numberroom numberofroom roomcount;
"""

SYNONYM_GROUPS: Final[dict[str, frozenset[int]]] = {}
for _number, _line in enumerate(_GROUP_LINES.split(";")):
    for _word in _line.split():
        SYNONYM_GROUPS[_word] = SYNONYM_GROUPS.get(_word, frozenset()) | {_number}

# Words that add nothing to a name beside them: `city_name`, `the_value`, `input_text`.
FILLER_WORDS: Final = parse_word_set(
    "name value string text number parameter the of a an input given specified argument target desired"
    " preferred selected my your for in on field query"
)

# Words that add nothing when the value itself looks the part: `start` for `start_date`.
SELF_EVIDENT_NAMES: Final = {
    "id": r"(?=.*\d)[\w.:-]+|[A-Z0-9_-]+",
    "date": r".*\d.*",
    "time": r".*\d.*",
    "day": r".*\d.*",
    "email": r"\S+@\S+",
    "url": r"\w+://\S+|\S+\.\S+",
    "link": r"\w+://\S+|\S+\.\S+",
    "path": r"\S*[/\\.]\S*",
    "file": r"\S*[/\\.]\S*",
    "address": r".*\S.*",
    "list": r".*",
    "array": r".*",
    "code": r"[A-Za-z0-9_-]{1,12}",
}

# Words that turn a name around: never dropped, whatever the tool is called.
OPPOSING_WORDS: Final = parse_word_set(
    "minimum maximum start end begin finish from to before after not no exclude include without with only old"
    " new"
    " source destination target first last previous next latitude longitude width height parent child in out"
    " left right top bottom up down input output low high lower upper initial final origin departure arrival"
    " sender recipient allow deny enable disable add remove inner outer primary secondary base"
)

# Names that say nothing about what they hold.
GENERIC_WORDS: Final = parse_word_set(
    "input text query value data content argument parameter arg q string item key prompt request question"
    " expression object payload body x message"
)

# Pairs that look alike and are not: never taken for a slip of the pen.
DISTINCT_NAMES: Final = (
    frozenset({"county", "country"}), frozenset({"count", "county"}), frozenset({"count", "country"}),
    frozenset({"month", "mouth"}), frozenset({"public", "publish"}), frozenset({"message", "massage"}),
    frozenset({"price", "prize"}), frozenset({"weight", "height"}), frozenset({"width", "weight"}),
    frozenset({"sender", "gender"}), frozenset({"income", "outcome"}), frozenset({"import", "export"}),
    frozenset({"include", "exclude"}), frozenset({"recipient", "recipe"}), frozenset({"read", "road"}),
    frozenset({"latitude", "altitude"}), frozenset({"form", "from"}), frozenset({"state", "date"}),
    frozenset({"state", "start"}), frozenset({"state", "status"}), frozenset({"field", "file"}),
    frozenset({"source", "course"}), frozenset({"minimum", "maximum"}), frozenset({"active", "inactive"}),
)  # fmt: skip
