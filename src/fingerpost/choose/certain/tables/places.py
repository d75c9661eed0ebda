"""Cities and countries, in English and Hebrew, and the time zone each of them lives by.

Only names that mean one place to nearly everybody: `Portland`, `Springfield` or a
country with several time zones are left out, because a wrong hour is worse than a question.
"""

from __future__ import annotations

from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.choose.certain.tables.zones import PLAIN_CITIES

# A zone, below it its cities, and behind `=` the countries and regions that live by it alone.
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

# Names of Africa, Asia and Europe in the IANA list that are also words, given names or other places.
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
        shelf = countries if "=" in line else cities
        shelf.update({name.strip(): zone for name in line.replace("=", "").split(",") if name.strip()})
    return cities, countries


CITIES, COUNTRIES = _parse_place_table()
MAX_PLACE_WORDS: Final = 3  # words

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
