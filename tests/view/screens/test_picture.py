"""The picture of a run: what it must show is on it, whatever the run; it is small, safe, and says when gold lacks."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.overview import Mark
from tiltmeter.view.payloads.picture import RunPicture
from tiltmeter.view.screens.gold import last_good
from tiltmeter.view.screens.picture.curves import PictureCurves, PictureFlag, pool_curve, read_curves, stretch_means
from tiltmeter.view.screens.picture.layout import ALONE, PAGE_SIZES, THUMBNAIL, PictureSize, draw_run
from tiltmeter.view.screens.picture.png import render_png
from tiltmeter.view.screens.picture.svg import render_svg
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
LARGEST = 30_000  # bytes
SIZES = (*PAGE_SIZES, THUMBNAIL, ALONE)
HOSTILE = '"><script>alert(1)</script><image href="http://x/"/>\x1b]0;\u202e'


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, copy_demo_run: Callable[[str, Path], RunDirectory]
) -> dict[str, RunReader]:
    from page_runs import agent, batches, components, measure, short, write

    folder = tmp_path_factory.mktemp("pictures")
    blind = write(
        folder / "blind", [[replace(one, gold=None, gold_chance=None) for one in list(batches("hacked"))[:20]]]
    )
    measure(blind)
    found = {
        "hacked": copy_demo_run("hacked", folder / "hacked"),
        "healthy": copy_demo_run("honest", folder / "healthy"),
        "blind": blind,
        "short": short(folder / "short"),
        "components": components(folder / "components", steps=3),
        "agent": agent(folder / "agent"),
        "empty": RunDirectory.create(folder / "empty"),
    }
    readers = {name: RunReader(run) for name, run in found.items()}
    for reader in readers.values():
        reader.refresh()
    return readers


def words(picture: RunPicture) -> str:
    return "\n".join(shape.text for shape in picture.words)


@pytest.mark.parametrize("name", ["hacked", "healthy", "blind", "short", "components", "agent", "empty"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.width}")
def test_it_is_one_small_file_of_shapes_and_words_inside_its_edges(
    runs: dict[str, RunReader], name: str, size: PictureSize
) -> None:
    picture = draw_run(read_curves(runs[name]), size)
    text = render_svg(picture)
    assert len(text.encode()) <= LARGEST
    tree = ElementTree.fromstring(text)
    assert {element.tag.rpartition("}")[2] for element in tree.iter()} <= {"svg", "title", "style", "path", "text"}
    assert not re.search(r"http(?!://www\.w3\.org/2000/svg)|url\(|@import|href|\son\w+=", text)
    across = [float(x) for path in picture.paths for x in re.findall(r"[ML](-?[\d.]+),", path.d)]
    down = [float(y) for path in picture.paths for y in re.findall(r",(-?[\d.]+)", path.d)]
    assert min([0.0, *across, *down]) >= -0.5 and max(across) <= size.width + 0.5 and max(down) <= size.height + 0.5
    assert all(0 <= one.x <= size.width and 0 <= one.y <= size.height for one in picture.words)


def colours(picture: RunPicture) -> set[str]:
    return {path.colour for path in picture.paths} | {one.colour for one in picture.words}


@pytest.mark.parametrize("name", ["hacked", "agent"])
@pytest.mark.parametrize("size", PAGE_SIZES, ids=lambda size: f"{size.width}")
def test_a_hacked_run_shows_where_it_turned_the_alarm_the_last_good_and_both_numbers(
    runs: dict[str, RunReader], name: str, size: PictureSize
) -> None:
    reader = runs[name]
    alarm = reader.verdict.alarms[0]
    picture = draw_run(read_curves(reader), size)
    shown = words(picture)
    assert f"turned: step {alarm.onset} ({alarm.onset_low} to {alarm.onset_high})" in shown
    assert f"alarm: step {alarm.step}" in shown
    assert "last good" in shown
    assert re.search(r"^reward \d", shown, re.M) and re.search(r"^gold 0\.0", shown, re.M)
    shaded = [path for path in picture.paths if path.colour == "act" and path.fill is True and path.opacity == 0.16]
    assert len(shaded) == 1
    for step in (alarm.onset, alarm.step):  # each line stands at its step
        x = picture.left + (picture.right - picture.left) * (step - picture.first) / (picture.last - picture.first)
        assert any(path.d.startswith(f"M{x:.1f}".removesuffix(".0")) for path in picture.paths if path.width == 1.6), (
            step
        )


def test_a_healthy_run_has_no_gap_and_no_flag(runs: dict[str, RunReader]) -> None:
    picture = draw_run(read_curves(runs["healthy"]))
    assert "act" not in colours(picture)
    assert "gold 0.9" in words(picture)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.width}")
def test_without_gold_the_picture_says_so_and_nothing_in_it_is_green(
    runs: dict[str, RunReader], size: PictureSize
) -> None:
    picture = draw_run(read_curves(runs["blind"]), size)
    assert "no gold: BLIND" in words(picture)
    assert not {"ok", "gold"} & colours(picture)
    assert "no step is measured yet" in words(draw_run(read_curves(runs["empty"]), size))


def test_the_last_good_checkpoint_is_a_ring_on_the_curve_of_gold(runs: dict[str, RunReader]) -> None:
    curves = read_curves(runs["hacked"])
    assert last_good(runs["hacked"]) is None and "no checkpoint to go back to" in words(draw_run(curves))
    kept = replace(curves, keep=PictureFlag(30, "last good: step 30, gold 0.7", "ok", 30, 30), notes=())
    for size in PAGE_SIZES:
        picture = draw_run(kept, size)
        rings = [path for path in picture.paths if path.colour == "ok"]
        assert len(rings) == 1 and "last good: step 30" in words(picture)


def long_curves(steps: int, like: PictureCurves) -> PictureCurves:
    rng = np.random.default_rng(1)
    ones = np.full(steps, 8)
    noise = ReadingSeries(np.arange(steps), np.cumsum(rng.normal(size=steps)), ones, np.full(steps, 0.1))
    noise.values[steps // 2] = 1e4  # the one spike
    noise.values[7:2000:3] = np.nan
    gold = ReadingSeries(np.arange(steps), rng.random(steps), ones, np.full(steps, 0.1))
    return replace(like, first=0, last=steps - 1, proxy=stretch_means(noise, 160), gold=pool_curve(gold, (0.5, 0.5)))


@pytest.mark.parametrize("steps", [10_000, 1_000_000])
def test_ten_thousand_steps_are_thinned_and_a_spike_stays(runs: dict[str, RunReader], steps: int) -> None:
    curves = long_curves(steps, read_curves(runs["agent"]))
    assert np.nanmax(curves.proxy.high) == 1e4 and len(curves.proxy.steps) <= 160
    marks = tuple(Mark(attempt=0, step=step, kind="did", text="beta 0.04 → 0.08", id="") for step in range(12))
    for size in SIZES:
        most = LARGEST if size.font else LARGEST / 8  # a fleet has hundreds
        assert len(render_svg(draw_run(replace(curves, actions=marks), size)).encode()) <= most


def test_all_text_is_escaped(runs: dict[str, RunReader]) -> None:
    curves = replace(
        read_curves(runs["agent"]),
        name=HOSTILE,
        verdict=HOSTILE,
        sentence=HOSTILE,
        actions=(Mark(attempt=0, step=20, kind="did", text=HOSTILE, id=""),),
        keep=PictureFlag(10, HOSTILE, "ok", 10, 10),
    )
    text = render_svg(draw_run(curves))
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert tags == {"svg", "title", "style", "path", "text"}
    assert "\x1b" not in text and "\u202e" not in text and "<script" not in text


@pytest.mark.parametrize("values", [[np.nan] * 4, [1.0], [0.0, 1e308, -1e308], [2.0, 2.0, 2.0]])
def test_rewards_of_any_size_can_be_drawn(runs: dict[str, RunReader], values: list[float]) -> None:
    count = len(values)
    series = ReadingSeries(np.arange(count), np.array(values), np.full(count, 8), np.full(count, np.nan))
    curves = replace(
        read_curves(runs["empty"]), first=0, last=count - 1, proxy=stretch_means(series, 160), missing="no gold: BLIND"
    )
    for size in SIZES:
        text = render_svg(draw_run(curves, size))
        assert "nan" not in text and "inf" not in text


def test_the_png_is_the_same_picture(runs: dict[str, RunReader]) -> None:
    picture = draw_run(read_curves(runs["hacked"]))
    image = Image.open(io.BytesIO(render_png(picture))).convert("RGB")
    assert image.size == (picture.width, picture.height)
    pixels = np.asarray(image, np.int64).reshape(-1, 3)
    red, green, blue = pixels.T
    assert ((red > 150) & (green < 70) & (blue < 70)).sum() > 300  # the alarm
    assert ((blue > 130) & (red < 70)).sum() > 300  # the reward
