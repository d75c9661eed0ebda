"""Charts and diagrams: from data or words to a picture."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from fingerpost.builtin.assets.charts import CHART_TYPES, Chart, draw_chart, format_number, parse_chart
from fingerpost.builtin.assets.diagrams import (
    FlowDiagram,
    SequenceDiagram,
    draw_diagram,
    parse_diagram,
    place_flow,
)
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.records import Json
from fingerpost.settings import Settings
from tests.kit import warm
from tests.kit.assets import maker, order_asset, place_order
from tests.kit.tables import table
from tests.requirements import proves

SVG = "{http://www.w3.org/2000/svg}"
HARMLESS = {
    *(f"{SVG}{name}" for name in ("svg", "title", "metadata", "defs", "style", "clipPath", "g")),
    *(f"{SVG}{name}" for name in ("rect", "circle", "path", "use", "text", "tspan")),
}
ABOUT = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}RDF"
LINK = "{http://www.w3.org/1999/xlink}href"
few = hypothesis_settings(max_examples=10)
drawn = hypothesis_settings(max_examples=3)  # a chart takes a tenth of a second


def texts(svg: bytes) -> list[str]:
    """The words in a picture, which must be harmless XML."""
    root = ET.fromstring(svg)
    for metadata in root.iter(f"{SVG}metadata"):
        assert [element.tag for element in metadata] == [ABOUT]
        metadata.clear()
    assert {element.tag for element in root.iter()} <= HARMLESS
    assert not [name for element in root.iter() for name in element.attrib if name.lower().startswith("on")]
    assert all(element.get(LINK, "#").startswith("#") for element in root.iter())
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


@pytest.mark.slow
@proves("B3", "U13")
async def test_pictures_show_what_they_were_given(settings: Settings):
    rows: Sequence[tuple[dict[str, Any], list[str]]] = [
        ({"prompt": "a bar chart of fruit sold: apples 3, pears 5 and plums 2.5"},
         ["Fruit sold", "apples", "pears", "plums", "2.5"]),
        ({"kind": "chart", "data": {"labels": ["Q1", "Q2"], "series": {"2025": [12, 18], "2026": [9, -3]}}},
         ["2025", "2026", "Q1", "Q2", "-3"]),
        ({"kind": "chart", "prompt": "pie chart", "data": "Rent: 900\nFood: 300"},
         ["Rent: 900 (75.0%)", "75%", "Food: 300 (25.0%)"]),
        ({"kind": "chart", "data": "month,sales\nJan,1200\nFeb,1500\nMar,900", "prompt": "line chart"},
         ["month", "sales", "Jan", "Mar"]),
        ({"kind": "chart", "data": [{"x": 1, "y": 2}, {"x": 8, "y": 3}, {"x": 4, "y": 9}]}, ["x", "y"]),
        ({"prompt": "a flowchart: order -> pay -> ship"}, ["order", "pay", "ship"]),
        ({"kind": "diagram", "prompt": "flowchart LR\nA[Start] --> B{Ready?}\nB -->|yes| C(Go)"},
         ["Start", "Ready?", "yes", "Go"]),
        ({"kind": "diagram", "data": {"messages": [["Ann", "Bob", "Hello"], ["Bob", "Ann", "Hi"]]}},
         ["Ann", "Bob", "Hello", "Hi"]),
    ]  # fmt: skip
    async with maker(settings) as router:
        for order, words in rows:
            picture = await order_asset(router, **order)
            assert picture.media_type == "image/svg+xml" and picture.name.endswith(".svg")
            shown = texts(picture.data)
            assert [word for word in words if word not in shown] == [], order


@pytest.mark.slow
@proves("U13")
async def test_words_in_a_picture_stay_words(settings: Settings):
    evil = '</text><script>alert(1)</script><text onload="x">&"\'\x07'
    async with maker(settings) as router:
        chart = await order_asset(router, kind="chart", title=evil, data={evil: 3, "b": 5})
        flow = await order_asset(router, kind="diagram", title=evil, data={"edges": [[evil, "b", evil]]})
        talk = await order_asset(router, kind="diagram", title=evil, data={"messages": [[evil, "b", evil]]})
    for picture in (chart, flow, talk):
        assert any("<script>" in text for text in texts(picture.data))
        assert "/" not in picture.name and "<" not in picture.name


@pytest.mark.slow
@proves("U13")
async def test_a_png_shows_the_same_bars(settings: Settings):
    order = {"kind": "chart", "data": {"low": 10, "high": 40}, "format": "png"}
    async with maker(settings) as router:
        picture = await order_asset(router, **order)
        refused = await place_order(router, **{**order, "data": {"日本": 10, "b": 2}})
    assert picture.media_type == "image/png"
    pixels = np.asarray(Image.open(io.BytesIO(picture.data)).convert("RGB"))
    blue = (np.abs(pixels.astype(int) - [0, 0x72, 0xB2]).sum(axis=2) < 12).sum(axis=0)
    left, right = blue[: blue.size // 2].max(), blue[blue.size // 2 :].max()
    assert right == pytest.approx(4 * left, rel=0.05)
    assert not refused.success and "format svg" in refused.content


@proves("U13")
async def test_what_cannot_be_drawn_is_said(settings: Settings):
    async with maker(settings) as router:
        for order, why in (
            ({"kind": "chart", "prompt": "a chart of nothing in particular"}, "no values"),
            ({"kind": "chart", "prompt": "pie chart", "data": {"a": -1, "b": 2}}, "bar chart"),
            ({"kind": "chart", "data": {"values": list(range(3000))}}, "at most 2,000"),
            ({"kind": "diagram", "prompt": "draw a diagram please"}, "A[Start]"),
            ({"kind": "diagram", "data": {"edges": [[str(n), str(n + 1)] for n in range(90)]}}, "80 boxes"),
            ({"kind": "chart", "data": {"a": 1}, "format": "wav"}, "svg or png"),
            ({"prompt": "something nice"}, "Give kind"),
            ({"kind": "image", "prompt": "a lighthouse"}, "builtin.specialists.images"),
        ):
            outcome = await place_order(router, **order)
            assert not outcome.success and why in outcome.content, outcome.content


numbers = st.floats(-1e9, 1e9, allow_nan=False) | st.integers(-(10**9), 10**9)
words = st.text(max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(words, inner, max_size=5),
    max_leaves=20,
)
known = st.sampled_from(
    [
        "labels",
        "values",
        "series",
        "data",
        "x",
        "y",
        "type",
        "nodes",
        "edges",
        "messages",
        "from",
        "to",
        "bar",
    ]
)
shaped = st.dictionaries(known, json_values | st.lists(known) | st.lists(numbers, max_size=6), max_size=5)


@pytest.mark.slow
@drawn
@example([0.0, 5e-324], "bar")
@example([1234567.0, 1234567.5], "line")
@example([-1e299, 1e299], "line")
@given(st.lists(numbers, min_size=1, max_size=30), st.sampled_from(["bar", "line"]))
def test_ticks_are_few_and_differ(values: list[float], kind: str):
    labels: Json = [f"name{number}" for number in range(len(values))]
    chart = parse_chart({"labels": labels, "values": values, "type": kind}, "")
    shown = texts(draw_chart(chart))
    ticks = [text for text in shown if not text.startswith("name")]
    assert 1 <= len(ticks) <= 14 + (len(values) if kind == "bar" else 0)
    assert kind == "bar" or len(set(ticks)) == len(ticks)


@table(
    ("value", "text"),
    [(1200, "1,200"), (35_000, "35k"), (2.5e6, "2.5M"), (0.25, "0.25"), (0, "0"), (-3, "-3"), (1e-7, "1e-07"),
     (100, "100"), (3e18, "3e+18")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str):
    assert format_number(value) == text


@pytest.mark.slow
@few
@example({"values": {}}, "")
@example([{}], "")
@given(json_values | shaped, words)
def test_any_data_becomes_a_chart_or_is_refused(data: Json, prompt: str):
    try:
        chart = parse_chart(data, prompt)
    except ToolRefused:
        return
    texts(draw_chart(chart))


@table(
    ("data", "text"),
    [
        ({"labels": ["a", "b", "c"], "values": [1]}, "differ in number: 3 and 1"),
        ({"labels": ["a"], "values": [1, 2]}, "differ in number: 1 and 2"),
        ({"labels": ["a", "b"], "series": {"x": [1, 2], "y": [1]}}, "differ in number: 2 and 1 of y"),
        ({"x": [1, 2], "y": [3]}, "differ in number: 2 and 1"),
        ({"labels": ["a", "b"], "values": [1e308, 1e308]}, "too large"),
        ({"a": 1, "b": -1e308}, "too large"),
        ({"a": 1, "b": 10**400}, "too large"),
        ([["a", "1e308"], ["b", 2]], "too large"),
    ],
)
def test_values_that_cannot_be_drawn_are_named(data: Json, text: str):
    with pytest.raises(ToolRefused, match=text) as refused:
        parse_chart(data, "")
    assert refused.value.hint


def test_lists_by_name_are_series_and_uneven_numbers_keep_their_distances():
    chart = parse_chart({"north": [1, 2], "south": [3, 4]}, "")
    assert [(series.name, series.values) for series in chart.series] == [
        ("north", (1.0, 2.0)),
        ("south", (3.0, 4.0)),
    ]
    even, uneven = (
        texts(draw_chart(parse_chart({"x": [1, 2, last], "y": [40, 50, 60], "type": "line"}, "")))
        for last in (3, 9)
    )
    assert [number for number in even if len(number) == 1] == ["1", "2", "3"]
    assert {"4", "5", "6"} < set(uneven)


def test_a_gap_is_no_missing_value():
    assert parse_chart({"labels": ["a", "b"], "values": [1, None]}, "").series[0].values == (1.0, None)


@pytest.mark.slow
@drawn
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), numbers, min_size=1, max_size=40
    ),
    st.sampled_from(CHART_TYPES),
)
def test_any_labels_and_values_are_drawn(values: dict[str, float], kind: str):
    try:
        chart = parse_chart({"labels": list(values), "values": list(values.values()), "type": kind}, "")
    except ToolRefused:
        assert kind == "pie"
        return
    assert texts(draw_chart(chart))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"), [("bar", 1), ("bar", 40), ("line", 40), ("scatter", 1), ("pie", 1), ("pie", 40)]
)
def test_nothing_is_drawn_at_the_edge_of_a_chart(kind: str, count: int):
    values = {f"{at} a rather long label for a value": 10.0**at for at in range(count)}
    drawn = draw_chart(
        parse_chart({"labels": list(values), "values": list(values.values()), "type": kind}, ""), "png"
    )
    pixels = np.asarray(Image.open(io.BytesIO(drawn)).convert("L"))
    for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:]):
        assert (edge == 255).all()


@pytest.mark.slow
@few
@given(json_values | shaped, words)
def test_any_data_becomes_a_diagram_or_is_refused(data: Json, prompt: str):
    try:
        diagram = parse_diagram(data, prompt)
    except ToolRefused:
        return
    texts(draw_diagram(diagram))


@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), min_size=1, max_size=40))
def test_boxes_of_a_flowchart_do_not_overlap(pairs: list[tuple[int, int]]):
    flow = parse_diagram({"edges": [[f"node {one}", f"node {other}"] for one, other in pairs]}, "")
    assert isinstance(flow, FlowDiagram)
    placed = place_flow(flow)
    boxes = [
        (x - box.width / 2, y - box.height / 2, x + box.width / 2, y + box.height / 2)
        for box, (x, y) in placed.boxes.values()
    ]
    assert len(boxes) == len(flow.nodes)
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            apart = one[2] <= other[0] or other[2] <= one[0]
            above = one[3] <= other[1] or other[3] <= one[1]
            assert apart or above
        assert one[0] >= 0 and one[1] >= 0 and one[2] <= placed.width and one[3] <= placed.height


def test_nodes_have_texts_and_shapes_of_their_own():
    flow = parse_diagram(
        {"nodes": [{"id": "a", "label": "Sure?", "shape": "diamond"}, ["b", "Go"]], "edges": [["a", "b"]]}, ""
    )
    assert isinstance(flow, FlowDiagram)
    assert [(node.key, node.text, node.shape) for node in flow.nodes] == [
        ("a", "Sure?", "diamond"),
        ("b", "Go", "box"),
    ]


def test_mermaid_text_is_understood():
    flow = parse_diagram(
        None,
        "graph TD;\nA[Ask] --> B{Sure?}; B -- no --> A\nB -.-> C\nC --- D([End])\n%% a comment\nA -->|x| C",
    )
    assert isinstance(flow, FlowDiagram)
    assert {node.key: (node.text, node.shape) for node in flow.nodes} == {
        "A": ("Ask", "box"), "B": ("Sure?", "diamond"), "C": ("C", "box"), "D": ("End", "round")
    }  # fmt: skip
    assert [(edge.start, edge.end, edge.label, edge.dashed, edge.arrow) for edge in flow.edges] == [
        ("A", "B", "", False, True), ("B", "A", "no", False, True), ("B", "C", "", True, True),
        ("C", "D", "", False, False), ("A", "C", "x", False, True),
    ]  # fmt: skip
    talk = parse_diagram(
        None, "sequenceDiagram\nparticipant A as Ann\nA->>Bob: Hello\nBob-->>A: Hi\nA->>A: thinks"
    )
    assert isinstance(talk, SequenceDiagram)
    assert [node.text for node in talk.participants] == ["Ann", "Bob"]
    assert [(message.label, message.dashed) for message in talk.messages] == [
        ("Hello", False),
        ("Hi", True),
        ("thinks", False),
    ]


@table(
    ("prompt", "pairs"),
    [
        ("Draw a bar chart of sales: Q1 12, Q2 18, Q3 9", {"Q1": 12, "Q2": 18, "Q3": 9}),
        ("a chart of apples 3, pears 5 and plums 2", {"apples": 3, "pears": 5, "plums": 2}),
        ("pie chart with 40% oil, 35% gas and 25% wind", {"oil": 40, "gas": 35, "wind": 25}),
        ("plot 2023: 1,200; 2024: 1,500; 2025: 900", {"2023": 1200, "2024": 1500, "2025": 900}),
    ],
)
def test_values_in_words_are_found(prompt: str, pairs: dict[str, float]):
    chart: Chart = parse_chart(None, prompt)
    assert dict(zip(chart.labels, chart.series[0].values, strict=True)) == pairs


@pytest.mark.slow
def test_letters_for_pngs():
    data: Json = {"1,234.5 € (67 %) – é?": 1, "שלום": 2, "Ελλάδα": 3, "$x$ and \\frac": 4}
    assert draw_chart(parse_chart(data, ""), "png").startswith(b"\x89PNG")


@pytest.mark.process
def test_a_settings_file_of_matplotlib_in_the_folder_changes_nothing(tmp_path: Path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nsvg.fonttype: path\n")
    program = """
from fingerpost.builtin.assets.charts import draw_chart, parse_chart
print(draw_chart(parse_chart({"a": 1}, "")).decode())
"""
    done = subprocess.run([*warm.python(), "-c", program], cwd=tmp_path, capture_output=True, check=True)
    assert "a" in texts(done.stdout)


@pytest.mark.process
def test_without_the_extra_the_refusal_says_what_to_install(tmp_path: Path):
    for name in ("matplotlib", "trimesh"):
        (tmp_path / f"{name}.py").write_text("raise ImportError\n")
    program = """
import anyio, sys
sys.path.insert(0, sys.argv[1])
from fingerpost.builtin.assets.builder import AssetRequest, produce_asset
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.settings import SpecialistsSettings
async def make(**order):
    try:
        print((await produce_asset(AssetRequest(**order), SpecialistsSettings())).name)
    except ToolRefused as refused:
        print(refused.text)
for order in ({"kind": "chart", "data": {"a": 1}}, {"prompt": "a flowchart: a -> b"},
              {"kind": "model3d", "prompt": "a red cube"}, {"kind": "audio", "prompt": "440 Hz"}):
    anyio.run(lambda: make(**order))
"""
    done = subprocess.run(
        [*warm.python(), "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        *["This needs matplotlib, which is not installed. pip install 'fingerpost[assets]'"] * 2,
        "This needs trimesh, which is not installed. pip install 'fingerpost[assets]'",
        "tune.wav",
    ]
