from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.evals.metrics import Interval
from factrl.evals.plots import Point, path_chart, steps_chart
from factrl.evals.report import places

TERNARY = [
    *(Point(0, 0.42, 0.116, 0.464), Point(20, 0.384, 0.188, 0.428), Point(40, 0.261, 0.493, 0.246)),
    Point(60, 0.188, 0.717, 0.095),
]
BINARY = [*(Point(0, 0.42, 0.116, 0.464), Point(20, 0.449, 0.051, 0.5)), Point(60, 0.478, 0.0, 0.522)]
CURVES = {"binary": BINARY, "ternary": TERNARY}
SHARES = st.tuples(st.integers(0, 100), st.integers(0, 100)).filter(lambda two: sum(two) <= 100)
PATHS = st.lists(SHARES, min_size=1, max_size=5).map(
    lambda path: [Point(i, (100 - a - h) / 100, a / 100, h / 100) for i, (a, h) in enumerate(path)]
)


@pytest.mark.parametrize(
    "curves",
    [
        {"one": [Point(5, 1.0, 0.0, 0.0)], "two": [Point(5, 0.0, 0.0, 1.0)]},
        {f"arm {i} with a name far too long to fit": TERNARY for i in range(7)},
        {"$\\frac{": BINARY, "_hidden & <more>": TERNARY},
    ],
)
def test_odd_curves_are_drawn(curves: dict[str, Sequence[Point]]) -> None:
    assert ET.fromstring(path_chart(curves)) is not None  # noqa: S314 - our own


@given(st.lists(PATHS, min_size=1, max_size=3))
def test_charts_are_well_formed_and_inside_their_box(paths: list[list[Point]]) -> None:
    curves = {f"arm {index}": path for index, path in enumerate(paths)}
    for svg in (path_chart(curves), steps_chart("arm 0", paths[0])):
        root = ET.fromstring(svg)  # noqa: S314 - our own
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for circle in root.iter("circle"):
            assert -1e-6 <= float(circle.attrib["cx"]) <= width
            assert -1e-6 <= float(circle.attrib["cy"]) <= height
        assert "nan" not in svg


def test_every_point_tells_its_numbers() -> None:
    told = re.findall(r"<title>(.*?)</title>", path_chart(CURVES))
    assert len(told) == len(BINARY) + len(TERNARY) + 2, "and the names"
    assert "ternary, step 60: accuracy 18.8, abstention 71.7, hallucination 9.5, truthfulness 9.3" in told


def test_every_line_has_a_name_and_a_marker_of_its_own() -> None:
    svg = steps_chart("ternary", TERNARY)
    for name in ("accuracy 18.8", "abstention 71.7", "hallucination 9.5", "truthfulness 9.3"):
        assert name in svg
    shapes = {re.sub(r"-?[\d.]+", "", mark) for mark in re.findall(r"</title><circle[^>]*/><(.*?)/>", svg)}
    assert len(shapes) >= 3, "circle, and polygons with three and four corners"


def test_a_whisker_has_zero_in_its_middle_and_stays_on_its_line() -> None:
    assert places(Interval(0.0, -0.1, 0.1), -0.5, 0.5) == (0.4, 0.5, 0.6)
    assert places(Interval(0.3, 0.2, 0.9), -0.5, 0.5) == (0.7, 0.8, 1.0)
