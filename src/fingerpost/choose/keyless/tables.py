"""Lookup tables: cities, countries, time zones, languages, currencies and common option values."""

from __future__ import annotations

from typing import Final

from fingerpost.catalog.words import STOP_WORDS, parse_word_set

_ZONES_BY_AREA: Final = {
    "Africa": """
        Abidjan Accra Addis_Ababa Algiers Asmara Asmera Bamako Bangui Banjul Bissau Blantyre Brazzaville
        Bujumbura Cairo Casablanca Ceuta Conakry Dakar Dar_es_Salaam Djibouti Douala El_Aaiun Freetown
        Gaborone Harare Johannesburg Juba Kampala Khartoum Kigali Kinshasa Lagos Libreville Lome Luanda
        Lubumbashi Lusaka Malabo Maputo Maseru Mbabane Mogadishu Monrovia Nairobi Ndjamena Niamey
        Nouakchott Ouagadougou Porto-Novo Sao_Tome Timbuktu Tripoli Tunis Windhoek
    """,
    "America": """
        Adak Anchorage Anguilla Antigua Araguaina Argentina/Buenos_Aires Argentina/Catamarca
        Argentina/ComodRivadavia Argentina/Cordoba Argentina/Jujuy Argentina/La_Rioja Argentina/Mendoza
        Argentina/Rio_Gallegos Argentina/Salta Argentina/San_Juan Argentina/San_Luis Argentina/Tucuman
        Argentina/Ushuaia Aruba Asuncion Atikokan Atka Bahia Bahia_Banderas Barbados Belem Belize
        Blanc-Sablon Boa_Vista Bogota Boise Buenos_Aires Cambridge_Bay Campo_Grande Cancun Caracas
        Catamarca Cayenne Cayman Chicago Chihuahua Ciudad_Juarez Coral_Harbour Cordoba Costa_Rica
        Coyhaique Creston Cuiaba Curacao Danmarkshavn Dawson Dawson_Creek Denver Detroit Dominica
        Edmonton Eirunepe El_Salvador Ensenada Fort_Nelson Fort_Wayne Fortaleza Glace_Bay Godthab
        Goose_Bay Grand_Turk Grenada Guadeloupe Guatemala Guayaquil Guyana Halifax Havana Hermosillo
        Indiana/Indianapolis Indiana/Knox Indiana/Marengo Indiana/Petersburg Indiana/Tell_City
        Indiana/Vevay Indiana/Vincennes Indiana/Winamac Indianapolis Inuvik Iqaluit Jamaica Jujuy Juneau
        Kentucky/Louisville Kentucky/Monticello Knox_IN Kralendijk La_Paz Lima Los_Angeles Louisville
        Lower_Princes Maceio Managua Manaus Marigot Martinique Matamoros Mazatlan Mendoza Menominee
        Merida Metlakatla Mexico_City Miquelon Moncton Monterrey Montevideo Montreal Montserrat Nassau
        New_York Nipigon Nome Noronha North_Dakota/Beulah North_Dakota/Center North_Dakota/New_Salem
        Nuuk Ojinaga Panama Pangnirtung Paramaribo Phoenix Port-au-Prince Port_of_Spain Porto_Acre
        Porto_Velho Puerto_Rico Punta_Arenas Rainy_River Rankin_Inlet Recife Regina Resolute Rio_Branco
        Rosario Santa_Isabel Santarem Santiago Santo_Domingo Sao_Paulo Scoresbysund Shiprock Sitka
        St_Barthelemy St_Johns St_Kitts St_Lucia St_Thomas St_Vincent Swift_Current Tegucigalpa Thule
        Thunder_Bay Tijuana Toronto Tortola Vancouver Virgin Whitehorse Winnipeg Yakutat Yellowknife
    """,
    "Antarctica": """
        Casey Davis DumontDUrville Macquarie Mawson McMurdo Palmer Rothera South_Pole Syowa Troll Vostok
    """,
    "Arctic": """
        Longyearbyen
    """,
    "Asia": """
        Aden Almaty Amman Anadyr Aqtau Aqtobe Ashgabat Ashkhabad Atyrau Baghdad Bahrain Baku Bangkok
        Barnaul Beirut Bishkek Brunei Calcutta Chita Choibalsan Chongqing Chungking Colombo Dacca
        Damascus Dhaka Dili Dubai Dushanbe Famagusta Gaza Harbin Hebron Ho_Chi_Minh Hong_Kong Hovd
        Irkutsk Istanbul Jakarta Jayapura Jerusalem Kabul Kamchatka Karachi Kashgar Kathmandu Katmandu
        Khandyga Kolkata Krasnoyarsk Kuala_Lumpur Kuching Kuwait Macao Macau Magadan Makassar Manila
        Muscat Nicosia Novokuznetsk Novosibirsk Omsk Oral Phnom_Penh Pontianak Pyongyang Qatar Qostanay
        Qyzylorda Rangoon Riyadh Saigon Sakhalin Samarkand Seoul Shanghai Singapore Srednekolymsk Taipei
        Tashkent Tbilisi Tehran Tel_Aviv Thimbu Thimphu Tokyo Tomsk Ujung_Pandang Ulaanbaatar Ulan_Bator
        Urumqi Ust-Nera Vientiane Vladivostok Yakutsk Yangon Yekaterinburg Yerevan
    """,
    "Atlantic": """
        Azores Bermuda Canary Cape_Verde Faeroe Faroe Jan_Mayen Madeira Reykjavik South_Georgia
        St_Helena Stanley
    """,
    "Australia": """
        ACT Adelaide Brisbane Broken_Hill Canberra Currie Darwin Eucla Hobart LHI Lindeman Lord_Howe
        Melbourne NSW North Perth Queensland South Sydney Tasmania Victoria West Yancowinna
    """,
    "Europe": """
        Amsterdam Andorra Astrakhan Athens Belfast Belgrade Berlin Bratislava Brussels Bucharest
        Budapest Busingen Chisinau Copenhagen Dublin Gibraltar Guernsey Helsinki Isle_of_Man Istanbul
        Jersey Kaliningrad Kiev Kirov Kyiv Lisbon Ljubljana London Luxembourg Madrid Malta Mariehamn
        Minsk Monaco Moscow Nicosia Oslo Paris Podgorica Prague Riga Rome Samara San_Marino Sarajevo
        Saratov Simferopol Skopje Sofia Stockholm Tallinn Tirane Tiraspol Ulyanovsk Uzhgorod Vaduz
        Vatican Vienna Vilnius Volgograd Warsaw Zagreb Zaporozhye Zurich
    """,
    "Indian": """
        Antananarivo Chagos Christmas Cocos Comoro Kerguelen Mahe Maldives Mauritius Mayotte Reunion
    """,
    "Pacific": """
        Apia Auckland Bougainville Chatham Chuuk Easter Efate Enderbury Fakaofo Fiji Funafuti Galapagos
        Gambier Guadalcanal Guam Honolulu Johnston Kanton Kiritimati Kosrae Kwajalein Majuro Marquesas
        Midway Nauru Niue Norfolk Noumea Pago_Pago Palau Pitcairn Pohnpei Ponape Port_Moresby Rarotonga
        Saipan Samoa Tahiti Tarawa Tongatapu Truk Wake Wallis Yap
    """,
}
_PLAIN_ZONES: Final = ("UTC", "GMT", "Etc/UTC", "Etc/GMT")

ZONES: Final = frozenset(
    (
        *_PLAIN_ZONES,
        *(f"{area}/{place}" for area, places in _ZONES_BY_AREA.items() for place in places.split()),
    )
)
ZONE_BY_LOWER_NAME: Final = {name.lower(): name for name in ZONES}
# `Africa/Nairobi` names its city. In the Americas and on islands, too many names are shared or are words.
PLAIN_CITIES: Final = {
    place.replace("_", " ").lower(): f"{area}/{place}"
    for area in ("Africa", "Asia", "Europe")
    for place in _ZONES_BY_AREA[area].split()
}


# A zone, then its cities, and after `=` the countries and regions that have only this zone.
_PLACE_TABLE: Final = """
Asia/Jerusalem
  jerusalem, tel aviv, haifa, beer sheva, eilat, netanya, ashdod, ירושלים, תל אביב, חיפה, באר שבע,
  אילת, נתניה, אשדוד, פתח תקווה, ראשון לציון, רמת גן
  = israel, ישראל
Europe/London
  london, manchester, liverpool, edinburgh, glasgow, cardiff, belfast, לונדון, מנצ'סטר, ליברפול,
  אדינבורו, גלזגו
  = uk, united kingdom, england, scotland, wales, britain, great britain, אנגליה, בריטניה, סקוטלנד
Europe/Dublin
  dublin, דבלין
  = ireland, אירלנד
Europe/Paris
  paris, lyon, marseille, toulouse, bordeaux, strasbourg, פריז, פאריס, ליון, מרסיי
  = france, צרפת
Europe/Berlin
  berlin, munich, hamburg, cologne, frankfurt, stuttgart, dresden, leipzig, ברלין, מינכן, המבורג, קלן,
  פרנקפורט
  = germany, גרמניה
Europe/Madrid
  madrid, barcelona, seville, bilbao, מדריד, ברצלונה, סביליה
  = spain, ספרד
Europe/Lisbon
  lisbon, porto, ליסבון, פורטו
  = portugal, פורטוגל
Europe/Rome
  rome, milan, naples, turin, florence, venice, bologna, רומא, מילאנו, נאפולי, טורינו, פירנצה, ונציה
  = italy, איטליה
Europe/Amsterdam
  amsterdam, rotterdam, the hague, utrecht, אמסטרדם, רוטרדם, האג
  = netherlands, holland, הולנד
Europe/Brussels
  brussels, antwerp, ghent, בריסל, אנטוורפן
  = belgium, בלגיה
Europe/Zurich
  zurich, zürich, geneva, basel, bern, ציריך, ז'נבה, באזל
  = switzerland, שווייץ, שוויץ
Europe/Vienna
  vienna, salzburg, innsbruck, וינה, זלצבורג
  = austria, אוסטריה
Europe/Prague
  prague, brno, פראג
  = czech republic, czechia, צ'כיה
Europe/Warsaw
  warsaw, krakow, gdansk, wroclaw, ורשה, קרקוב
  = poland, פולין
Europe/Budapest
  budapest, בודפשט
  = hungary, הונגריה
Europe/Bucharest
  bucharest, cluj, בוקרשט
  = romania, רומניה
Europe/Sofia
  sofia, סופיה
  = bulgaria, בולגריה
Europe/Belgrade
  belgrade, בלגרד
  = serbia, סרביה
Europe/Zagreb
  zagreb, זאגרב
  = croatia, קרואטיה
Europe/Athens
  athens, thessaloniki, אתונה, סלוניקי
  = greece, יוון
Europe/Istanbul
  istanbul, ankara, izmir, antalya, איסטנבול, אנקרה, אנטליה
  = turkey, türkiye, טורקיה, תורכיה
Europe/Copenhagen
  copenhagen, aarhus, קופנהגן
  = denmark, דנמרק
Europe/Stockholm
  stockholm, gothenburg, malmö, סטוקהולם
  = sweden, שוודיה
Europe/Oslo
  oslo, bergen, trondheim, אוסלו, ברגן
  = norway, נורווגיה
Europe/Helsinki
  helsinki, tampere, הלסינקי
  = finland, פינלנד
Atlantic/Reykjavik
  reykjavik, רייקיאוויק
  = iceland, איסלנד
Europe/Tallinn
  tallinn, טאלין
  = estonia, אסטוניה
Europe/Riga
  riga, ריגה
  = latvia, לטביה
Europe/Vilnius
  vilnius, וילנה
  = lithuania, ליטא
Europe/Kyiv
  kyiv, kiev, lviv, odesa, קייב, לבוב, אודסה
  = ukraine, אוקראינה
Europe/Moscow
  moscow, saint petersburg, st petersburg, st. petersburg, מוסקבה, סנט פטרסבורג
Asia/Nicosia
  nicosia, limassol, larnaca, ניקוסיה, לימסול, לרנקה
  = cyprus, קפריסין
Asia/Tokyo
  tokyo, osaka, kyoto, yokohama, sapporo, טוקיו, אוסקה, קיוטו
  = japan, יפן
Asia/Seoul
  seoul, busan, סיאול
  = south korea, korea, דרום קוריאה
Asia/Shanghai
  shanghai, beijing, shenzhen, guangzhou, שנחאי, בייג'ינג, בייג׳ינג
  = china, סין
Asia/Hong_Kong
  hong kong, הונג קונג
Asia/Taipei
  taipei, טאיפיי
  = taiwan, טייוואן
Asia/Singapore
  singapore, סינגפור
Asia/Kuala_Lumpur
  kuala lumpur, קואלה לומפור
  = malaysia, מלזיה
Asia/Bangkok
  bangkok, phuket, chiang mai, בנגקוק, פוקט
  = thailand, תאילנד
Asia/Ho_Chi_Minh
  ho chi minh city, saigon, hanoi, סייגון, האנוי
  = vietnam, וייטנאם
Asia/Manila
  manila, מנילה
  = philippines, פיליפינים
Asia/Jakarta
  jakarta, ג'קרטה
Asia/Makassar
  bali, denpasar, באלי
Asia/Kolkata
  mumbai, delhi, new delhi, bangalore, bengaluru, kolkata, chennai, hyderabad, מומבאי, דלהי, ניו דלהי,
  בנגלור
  = india, הודו
Asia/Karachi
  karachi, lahore, islamabad, קראצ'י
  = pakistan, פקיסטן
Asia/Dhaka
  dhaka, דאקה
  = bangladesh, בנגלדש
Asia/Kathmandu
  kathmandu, קטמנדו
  = nepal, נפאל
Asia/Colombo
  colombo, קולומבו
  = sri lanka, סרי לנקה
Asia/Dubai
  dubai, abu dhabi, דובאי, אבו דאבי
  = uae, united arab emirates, איחוד האמירויות
Asia/Riyadh
  riyadh, jeddah, mecca, ריאד
  = saudi arabia, ערב הסעודית
Asia/Qatar
  doha, דוחא
  = qatar, קטאר
Asia/Kuwait
  kuwait city
  = kuwait, כווית
Asia/Amman
  amman, עמאן
  = jordan, ירדן
Asia/Beirut
  beirut, ביירות
  = lebanon, לבנון
Asia/Baghdad
  baghdad, בגדאד
  = iraq, עיראק
Asia/Tehran
  tehran, טהרן
  = iran, איראן
Asia/Tbilisi
  tbilisi, batumi, טביליסי, בטומי
Asia/Yerevan
  yerevan, ירוואן
  = armenia, ארמניה
Asia/Baku
  baku, באקו
  = azerbaijan, אזרבייג'ן
Africa/Cairo
  cairo, alexandria, sharm el sheikh, קהיר
  = egypt, מצרים
Africa/Casablanca
  casablanca, marrakesh, marrakech, rabat, קזבלנקה, מרקש
  = morocco, מרוקו
Africa/Tunis
  tunis, תוניס
  = tunisia, תוניסיה
Africa/Nairobi
  nairobi, mombasa, ניירובי
  = kenya, קניה
Africa/Addis_Ababa
  addis ababa, אדיס אבבה
  = ethiopia, אתיופיה
Africa/Lagos
  lagos, abuja, לאגוס
  = nigeria, ניגריה
Africa/Johannesburg
  johannesburg, cape town, durban, pretoria, יוהנסבורג, קייפטאון
  = south africa, דרום אפריקה
America/New_York
  new york, new york city, nyc, boston, washington dc, washington d.c., philadelphia, miami, atlanta,
  baltimore, orlando, ניו יורק, בוסטון, מיאמי, אטלנטה, פילדלפיה
America/Chicago
  chicago, houston, dallas, austin, san antonio, new orleans, minneapolis, milwaukee, שיקגו, יוסטון,
  דאלאס, אוסטין
America/Denver
  denver, salt lake city, albuquerque, דנבר
America/Phoenix
  phoenix, tucson, פיניקס
America/Los_Angeles
  los angeles, san francisco, seattle, san diego, las vegas, sacramento, oakland, לוס אנג'לס, לוס
  אנג׳לס, סן פרנסיסקו, סיאטל, לאס וגאס, סן דייגו
America/Detroit
  detroit, דטרויט
America/Anchorage
  anchorage, אנקורג'
Pacific/Honolulu
  honolulu, הונולולו
  = hawaii, הוואי
America/Toronto
  toronto, montreal, ottawa, quebec city, טורונטו, מונטריאול, אוטווה
America/Vancouver
  vancouver, ונקובר
America/Edmonton
  calgary, edmonton, קלגרי
America/Winnipeg
  winnipeg
America/Halifax
  halifax
America/Mexico_City
  mexico city, guadalajara, מקסיקו סיטי
America/Havana
  havana, הוואנה
  = cuba, קובה
America/Panama
  panama city
  = panama, פנמה
America/Costa_Rica
  = costa rica, קוסטה ריקה
America/Bogota
  bogota, bogotá, medellin, בוגוטה
  = colombia, קולומביה
America/Lima
  lima, cusco, לימה
  = peru, פרו
America/Caracas
  caracas, קראקס
  = venezuela, ונצואלה
America/Sao_Paulo
  sao paulo, são paulo, rio de janeiro, brasilia, סאו פאולו, ריו דה ז'ניירו
America/Argentina/Buenos_Aires
  buenos aires, בואנוס איירס
  = argentina, ארגנטינה
America/Montevideo
  montevideo, מונטווידאו
  = uruguay, אורוגוואי
Australia/Sydney
  sydney, canberra, סידני, קנברה
Australia/Melbourne
  melbourne, מלבורן
Australia/Brisbane
  brisbane, בריסביין
Australia/Adelaide
  adelaide, אדלייד
Pacific/Auckland
  auckland, wellington, אוקלנד, וולינגטון
  = new zealand, ניו זילנד
"""

# IANA names of Africa, Asia and Europe that are also words, given names or other places.
_AMBIGUOUS_PLACES: Final = parse_word_set(
    "jersey oral chita samara aden gaza hebron bissau tripoli banjul sofia victoria kirov hovd"
)


def _parse_place_table() -> tuple[dict[str, str], dict[str, str]]:
    cities = {name: zone for name, zone in PLAIN_CITIES.items() if name not in _AMBIGUOUS_PLACES}
    countries: dict[str, str] = {}
    zone = ""
    for line in _PLACE_TABLE.strip().splitlines():
        if not line.startswith(" "):
            zone = line
            continue
        table = countries if "=" in line else cities
        table.update({name.strip(): zone for name in line.replace("=", "").split(",") if name.strip()})
    return cities, countries


CITIES, COUNTRIES = _parse_place_table()
MAX_PLACE_WORDS: Final = 3

# `Paris, Texas` is not Paris: a name followed by one of these is another place.
PLACE_QUALIFIERS: Final = parse_word_set(
    """
    alabama alaska arizona arkansas california colorado connecticut delaware florida georgia idaho
    illinois indiana iowa kansas kentucky louisiana maine maryland massachusetts michigan minnesota
    mississippi missouri montana nebraska nevada ohio oklahoma oregon pennsylvania tennessee texas utah
    vermont virginia washington wisconsin wyoming ontario alberta manitoba saskatchewan quebec tx ca ny
    on oh ga il ky me id
    """
)


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
ENGLISH_LANGUAGE_NAMES: Final = {line.split()[0]: line.split()[1] for line in _LANGUAGES.strip().splitlines()}

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
# Only unambiguous names: a dollar or a pound may belong to several countries.
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


_HEBREW_OPTIONS: Final = """
celsius צלזיוס
fahrenheit פרנהייט
metric מטרי מטרית
daily יומי יומית
weekly שבועי שבועית
monthly חודשי חודשית
yearly שנתי שנתית
high גבוהה גבוה
medium בינונית בינוני
low נמוכה נמוך
critical קריטית קריטי
open פתוח פתוחה פתוחים פתוחות
closed סגור סגורה סגורים סגורות
all כל
kitchen מטבח
bedroom שינה
red אדום אדומה
green ירוק ירוקה
blue כחול כחולה
male גברי
female נשי
error שגיאה
success הצלחה
"""
HEBREW_OPTION_WORDS: Final = {
    line.split()[0]: tuple(line.split()[1:]) for line in _HEBREW_OPTIONS.strip().splitlines()
}

ORDINARY_WORDS: Final = STOP_WORDS | parse_word_set(
    """
    name size date time title text open opened closed close done high low medium normal new old first
    last next day week month year hour minute second today all any both full short long big small large
    simple auto public private local remote up down left right start end in out on off yes no good best
    top bottom main file files folder image video audio number count value key day light dark fast slow
    hot cold read write run stop active present general standard basic advanced free paid work home user
    group team page line word message note body head raw table column row order state status price cost
    amount money market point level class test tests critical urgent important man woman child children
    people person ascending descending relevance resource
    """
)
