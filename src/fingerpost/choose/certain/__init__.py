"""Routing and acting without any model: only what is certain, and a question for the rest."""

from fingerpost.choose.certain.answers import fill_answer, picked, refused
from fingerpost.choose.certain.arithmetic import reckon
from fingerpost.choose.certain.asking import ask_for, question_for
from fingerpost.choose.certain.choosing import Certain, Option, choose_tool
from fingerpost.choose.certain.fill import Filled, fill
from fingerpost.choose.certain.replies import (
    keyless_answer,
    keyless_direct,
    reply_with_routing_off,
    unfenced,
)

__all__ = [
    "Certain",
    "Filled",
    "Option",
    "ask_for",
    "choose_tool",
    "fill",
    "fill_answer",
    "keyless_answer",
    "keyless_direct",
    "picked",
    "question_for",
    "reckon",
    "refused",
    "reply_with_routing_off",
    "unfenced",
]
