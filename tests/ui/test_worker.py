"""The page's web worker; the canvas draws a sample of the points while the view moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


# The rows that the flat plot paints of 30,000 while it is zoomed, and afterwards: [moving, moving again, at rest].
PAINTED = """async () => {
    const { createFlatPlot } = await import('/explorer/js/plot/flat.js');
    const canvas = document.body.appendChild(document.createElement('canvas'));
    const plot = createFlatPlot(canvas, { hover: () => {}, select: () => {}, view: () => {} });
    const n = 30000;
    plot.resize(1200, 1200);
    const at = (i) => [i % 200, Math.floor(i / 200)].map((side) => side / 100 - 1);
    const xy = Float32Array.from({ length: 2 * n }, (_, i) => 0.9 * at(i >> 1)[i % 2]);
    const counts = [];
    const put = CanvasRenderingContext2D.prototype.putImageData;
    const context = canvas.getContext('2d');
    context.putImageData = function (image, ...rest) {
        counts.push(new Uint32Array(image.data.buffer).reduce((sum, word) => sum + Number(word !== 0), 0));
        return put.call(this, image, ...rest);
    };
    const look = { index: new Uint16Array(n), palette: ['#0072b2'], legend: { kind: 'plain', title: '' } };
    await plot.show(xy, look);
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const all = counts.pop();
    for (let turn = 0; turn < 2; turn++) {
        plot.zoom(1);
        await frame();
    }
    const moving = counts.splice(0);
    while (!counts.length) await frame();
    plot.destroy();
    canvas.remove();
    return { all, moving, atRest: counts.pop(), side: all / n };
}"""


def test_a_moving_view_draws_a_sample_and_a_resting_one_every_point(explorer: Explorer) -> None:
    """On the canvas without WebGL 30,000 points that do not touch are all painted, and while zooming a fixed part."""
    explorer.open()
    painted = explorer.page.evaluate(PAINTED)
    assert painted["side"] in {1, 4, 9}  # pixels of a point: all have as many
    assert painted["atRest"] == painted["all"]
    assert len(set(painted["moving"])) == 1
    assert 0.6 < painted["moving"][0] / painted["all"] < 0.73  # 20,000 of 30,000


# Whether a call of the page that began while the worker could not load has an answer.
IS_ANSWERED = """async () => {
    const { compute } = await import('/explorer/js/lib/background.js');
    const look = await compute('lookOf', { n: 2, name: 'labels', title: 'kind', theme: 'light', order: null,
        isDate: false, values: ['a', 'b'], shares: null, where: '' });
    return look.index.length === 2;
}"""


def test_a_worker_that_did_not_load_is_started_again(explorer: Explorer) -> None:
    """If the service was away when the worker was loaded, the worker is loaded again and answers the call."""
    explorer.expected.append("ERR_FAILED")
    explorer.open()
    explorer.page.route("**/js/worker.js", lambda route: route.abort(), times=1)
    assert explorer.page.evaluate(IS_ANSWERED)


# Outlines of two islands of 200 points: A has two clumps of one size, far from each other, and a stray point.
OUTLINES = """async () => {
    const { outlinesOf } = await import('/explorer/js/plot/islands.js');
    const of = Float32Array.from({ length: 400 }, (_, i) => Number(i >= 200));
    const data = Float32Array.from({ length: 800 }, (_, i) => {
        const row = i >> 1, [x, y] = row === 0 ? [0, 0.9] : row >= 200 ? [0, -0.5] : [row % 2 ? -0.8 : 0.8, 0.5];
        return (i % 2 ? y : x) + 0.05 * Math.sin(row * (i % 2 ? 1.7 : 2.9));
    });
    const outlines = outlinesOf({ islands: { names: ['A', 'B'], isSolid: [true, false], of }, data, p: 2,
        directions: [[1, 0], [0, 1]], box: { center: [0, 0], half: [1, 1] } });
    const sides = (rings) => rings.map((ring) => Math.sign(Math.round(ring[0][0]))).sort();
    return outlines.map(({ rings }) => sides(rings));
}"""


def test_every_main_piece_of_an_island_has_an_outline(explorer: Explorer) -> None:
    """Also where a map draws an island as several clumps; a stray point has none."""
    explorer.open()
    assert explorer.page.evaluate(OUTLINES) == [[-1, 1], [0]]
