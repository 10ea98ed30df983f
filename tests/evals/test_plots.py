from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from factrl.evals.metrics import Interval
from factrl.evals.plots import Point, outcomes_chart, series_chart
from factrl.evals.report import places

POINTS = [
    *(Point(0, 0.42, 0.116, 0.464), Point(20, 0.384, 0.188, 0.428), Point(40, 0.261, 0.493, 0.246)),
    Point(60, 0.188, 0.717, 0.095),
]
LINES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=70).map(
    lambda values: [(float(step), value) for step, value in enumerate(values)]
)


@given(st.dictionaries(st.text(max_size=40), LINES, min_size=1, max_size=7))
def test_charts_are_well_formed_and_inside_their_box(lines: dict[str, list[tuple[float, float]]]) -> None:
    svg = series_chart("$\\frac{ <reward>", lines)
    root = ET.fromstring(svg)  # noqa: S314 - our own
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for circle in root.iter("circle"):
        assert -1e-6 <= float(circle.attrib["cx"]) <= width
        assert -1e-6 <= float(circle.attrib["cy"]) <= height
    assert not re.search(r'="[^"]*\bnan\b', svg.partition("<title>")[0])


def test_every_line_has_a_name_and_a_marker_of_its_own_and_every_point_its_number() -> None:
    svg = outcomes_chart(POINTS)
    told = re.findall(r"<title>(.*?)</title>", svg)
    assert len(told) == 4 * len(POINTS) + 4, "and the names"
    assert "abstention 71.7 at step 60" in told
    for name in ("accuracy 18.8", "abstention 71.7", "hallucination 9.5", "truthfulness 9.3"):
        assert name in told
    shapes = {re.sub(r"-?[\d.]+", "", mark) for mark in re.findall(r"</title><circle[^>]*/><(.*?)/>", svg)}
    assert len(shapes) >= 3, "circle, and polygons with three and four corners"


def test_a_whisker_has_zero_in_its_middle_and_stays_on_its_line() -> None:
    assert places(Interval(0.0, -0.1, 0.1), -0.5, 0.5) == (0.4, 0.5, 0.6)
    assert places(Interval(0.3, 0.2, 0.9), -0.5, 0.5) == (0.7, 0.8, 1.0)
