"""Permitted values that are the same in other words, and those that are never the same."""

from __future__ import annotations

from typing import Final

from fingerpost.catalog.words import parse_word_set


def _parse_sets(text: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(group.split("/")) for group in text.split())


OPPOSITE_VALUES: Final = _parse_sets(
    """
    asc/desc ascending/descending true/false yes/no on/off allow/deny allowed/denied accept/reject
    approve/reject grant/revoke enable/disable enabled/disabled open/close opened/closed open/closed
    public/private include/exclude add/remove create/delete read/write up/down left/right top/bottom
    before/after start/stop start/end first/last min/max minimum/maximum in/out buy/sell
    increase/decrease active/inactive push/pull import/export lock/unlock mute/unmute
    install/uninstall all/none male/female old/new newest/oldest high/low hot/cold input/output
    source/target from/to sync/async valid/invalid inbound/outbound incoming/outgoing
    upload/download encrypt/decrypt encode/decode show/hide like/dislike follow/unfollow
    subscribe/unsubscribe mount/unmount credit/debit gain/loss ingress/egress prefix/suffix
    """
)

SAME_VALUES: Final = _parse_sets(
    """
    asc/ascending/ascend desc/descending/descend min/minimum max/maximum c/celsius/centigrade
    f/fahrenheit k/kelvin km/kilometer/kilometre mi/mile kg/kilogram/kilo g/gram lb/pound
    cm/centimeter/centimetre ft/foot/feet in/inch sec/second hr/hour/h md/markdown
    txt/text/plaintext yml/yaml jpg/jpeg js/javascript ts/typescript py/python
    """
)

# Whole words that happen to begin longer ones: `all` is not short for `allow`.
COMPLETE_ENUMS: Final = parse_word_set(
    """
    all any none not read write on off yes no true false allow deny open close new old in out up
    down and or one two with over under un non pre post sub super ex add set get put use man wo for
    per day auto semi min max part can mis dis act
    """
)
