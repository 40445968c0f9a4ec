"""The capacity model: its laws, its plans, its program, its page, and its simulation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.capacity import demand as program
from bench.capacity import tables
from bench.capacity.model.cost_law import Law
from bench.capacity.model.fitting import fitted
from bench.capacity.model.plan import BUSY, Demand, plan, reading
from bench.capacity.model.queueing_model import METERS, Model, Shape
from bench.capacity.scenarios import LOAD, simulated
from bench.capacity.simulation import Simulation
from bench.capacity.stations import Line, LruCache, Setting
from docs.figures.methods.tables import between
from glle_engine import fit, manifolds
from glle_engine.methods.costs import product

SHAPE = Shape(n=5_000)
DEMAND = Demand(shape=SHAPE, fits=0.1, draws=200, singles=2, reads=50, posteriors=1_000, draws_kept=64)


def test_a_law_is_a_sum_of_products() -> None:
    """Powers and logarithms are parsed; a missing name is an error."""
    assert product("n k^2", {"n": 3, "k": 2}) == 12
    assert product("1", {}) == 1
    assert product("n log(n)", {"n": 1}) == 0
    assert Law(terms={"1": 0.5, "n k^2": 2.0}).at({"n": 3, "k": 2}) == 24.5
    with pytest.raises(KeyError, match="d"):
        product("n d", {"n": 3})


def test_a_fit_has_the_law_and_its_error() -> None:
    """Costs of a law give it back; costs outside of the terms have an error above 1; zero costs have no term."""
    rows = [{"n": n, "k": k, "cost": 1e-6 * n * k * k + 2e-3} for n in (500, 1000, 2000, 5000) for k in (5, 10)]
    law = fitted(rows, "cost", ("1", "n", "n k", "n k^2"))
    assert law.terms == pytest.approx({"1": 2e-3, "n k^2": 1e-6}, rel=1e-3)
    assert law.worst == 1
    assert fitted(rows, "cost", ("1",)).worst > 2
    assert fitted(rows, "cost", ("1",), least=1e6).terms == {}


def test_the_page_has_the_measured_tables() -> None:
    """Each table of docs/how-to/scaling.md is that of the stored results."""
    page = tables.PAGE.read_text(encoding="utf-8")
    for name, table in tables.tables().items():
        assert between(page, name) == table, f"{name}: python -m bench.capacity --parts page"


def test_every_cost_has_its_law() -> None:
    """Each meter of each operation on the page is at least 0, and grows with the points."""
    model = Model.read()
    for operation in tables.OPERATIONS:
        cost = tables._cost(model, operation, SHAPE)
        assert all(getattr(cost, meter) >= 0 for meter in METERS)
    assert model.cost("fit", SHAPE).worker_cpu > model.cost("fit", Shape(n=500)).worker_cpu > 0.01


def test_the_arrays_have_the_size_of_the_model() -> None:
    """The law of a posterior's bytes is exact for every shape."""
    posterior = fit(manifolds.make("s_curve", 300, seed=0).X, n_neighbors=7)
    law = sum(array.nbytes for array in posterior.arrays().values())
    assert Model.read().engine("posterior_bytes", Shape(n=300, k=7)) == pytest.approx(law, rel=0.01)


def test_a_plan_grows_with_its_demand() -> None:
    """Ten times the demand is ten times the work; the fullest station is first; stored data count in bytes."""
    model = Model.read()
    single, ten = plan(model, DEMAND), plan(model, replace(DEMAND, fits=1, draws=2_000, singles=20, reads=500))
    assert ten.cost.worker_cpu == pytest.approx(10 * single.cost.worker_cpu)
    assert ten.workers >= ten.cost.worker_cpu / BUSY > ten.workers - 1
    assert [station.busy for station in ten.stations] == sorted(
        (station.busy for station in ten.stations), reverse=True
    )
    assert single.fits
    assert not plan(model, replace(DEMAND, singles=1e5)).fits
    kept = plan(model, replace(DEMAND, draws_kept=0)).cache_bytes
    assert kept == pytest.approx(1_000 * model.engine("posterior_cached", SHAPE))
    assert single.cache_bytes - kept == pytest.approx(64_000 * model.engine("draw_cached", SHAPE))


def test_the_program_plans_a_demand(capsys: pytest.CaptureFixture[str]) -> None:
    """The text has workers, processes, bytes and the fullest station; the JSON has the figures."""
    assert program.main(["--n", "5000", "--draws-per-second", "200", "--posteriors", "10"]) == 0
    text = capsys.readouterr().out
    assert "workers" in text
    assert "Full first: the " in text
    assert program.main(["--n", "5000", "--singles-per-second", "100000"]) == 0
    assert "Too much for one queue server" in capsys.readouterr().out
    assert program.main([]) == 0
    assert "Give a rate" in capsys.readouterr().out
    assert program.main(["--fits-per-second", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] >= 1


@pytest.mark.parametrize(
    "bad", [["--n", "1"], ["--p", "0"], ["--reads-per-second", "-1"], ["--fits-per-second", "nan"]]
)
def test_the_program_refuses_an_impossible_demand(bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the option: too few points, a negative rate."""
    with pytest.raises(SystemExit):
        program.main(bad)
    assert bad[0] in capsys.readouterr().err


def test_a_queue_serves_in_order_and_a_cache_evicts_the_oldest() -> None:
    """Two servers work at once, a third request waits; the most recently used entry stays."""
    line = Line([0.0, 0.0])
    assert [line.leave(0.0, 1.0) for _ in range(3)] == [1.0, 1.0, 2.0]
    assert line.busy == 3
    kept = LruCache(2)
    for name in ("a", "b"):
        kept.put(name, 1)
    assert kept.has("a")
    kept.put("c", 1)
    assert [kept.has(name) for name in ("a", "b", "c")] == [True, False, True]
    assert kept.evicted == 1


def test_the_simulation_agrees_with_the_closed_form_below_saturation() -> None:
    """Every request ends, and each station's load is that of the plan, but for chance; idle workers share jobs."""
    model, seconds = Model.read(), 200.0
    demand = replace(DEMAND, draws=0, posteriors=3)
    setting = Setting(demand=demand, workers=20, api=8, cache_bytes=1e12, seconds=seconds)
    outcome = Simulation(model, setting).run()
    cost = plan(model, demand).cost
    assert outcome.done >= 0.99 * outcome.asked > 0
    for station, expected in (("workers", cost.worker_cpu), ("api", cost.api_cpu), ("queue", cost.queue_cpu)):
        assert outcome.spent[station] == pytest.approx(seconds * expected, rel=0.15)
    assert outcome.refits == 0
    many = replace(setting, demand=Demand(shape=SHAPE, draws=64, posteriors=3), seconds=60)
    simulation = Simulation(model, many)
    shared = simulation.run()
    # While a worker is idle, every shard is a separate task.
    more = (simulation.spec.shards - 1) * model.laws["job worker_cpu"].terms["tasks"]
    read = simulation.spec.shards * reading(model, SHAPE).worker_cpu
    each = model.cost("job", SHAPE, draws=64).worker_cpu + more + read
    assert shared.spent["workers"] == pytest.approx(shared.asked * each, rel=0.05)


def test_the_simulation_finds_the_saturated_station() -> None:
    """A small cache causes fits again; workers beyond the queue server's capacity add no throughput."""
    model = Model.read()
    small = Setting(demand=replace(DEMAND, posteriors=1_000), workers=20, api=8, cache_bytes=1e8, seconds=20, zipf=0.0)
    outcome = Simulation(model, small).run()
    assert outcome.refits > 10
    assert outcome.evicted > 0
    demand = Demand(shape=Shape(n=500), singles=1, posteriors=10)
    many = simulated(model, "singles", demand, 60, requests=1)
    assert many.busy["queue"] > 0.95 > LOAD > many.busy["workers"]
    assert many.done < 0.8 * many.asked
