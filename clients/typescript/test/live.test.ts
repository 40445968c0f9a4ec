// The client against a running service, whose address is GLLE_URL.

import assert from "node:assert/strict";
import { before, describe, test } from "node:test";

import { Client, ConflictError, type Dataset, InvalidRequestError, type JobEvent, NotFoundError, type Posterior } from "../src/index.ts";

const N = 300;

describe("a running service", { skip: process.env["GLLE_URL"] ? false : "GLLE_URL is not set" }, () => {
  const client = new Client();
  let sheet: Dataset;
  let posterior: Posterior;

  before(async () => {
    sheet = await client.synthetic("s_curve", N);
    posterior = await client.fit(sheet, { n_neighbors: 10 });
  });

  test("an array, rows and a CSV file of the same values have the same values again", async () => {
    const array = await sheet.data();
    assert.deepEqual([array.dtype, array.shape], ["float64", [N, 3]]);
    const rows = array.tolist() as number[][];
    const csv = `x,y,z\n${rows.map((row) => row.join(",")).join("\n")}\n`;
    const named = rows.map(([x, y, z]) => ({ x, y, z }) as Record<string, number>);
    const uploads = [array, rows, named, new File([csv], "sheet.csv"), new Blob([csv], { type: "text/csv" })];
    const datasets = await Promise.all(uploads.map((data) => client.dataset(data)));
    for (const dataset of datasets) assert.deepEqual((await dataset.data()).data, array.data);
    assert.equal(datasets[0]?.id, datasets[1]?.id);
    assert.equal(datasets[2]?.id, datasets[3]?.id);
    assert.deepEqual(datasets[2]?.names, ["x", "y", "z"]);
    assert.equal((await sheet.data({ dtype: "float32" })).dtype, "float32");
  });

  test("columns have roles, a preview stores nothing, and refusals name the column", async () => {
    const rows = Array.from({ length: 20 }, (_, i) => ({ x: i / 7, y: (i * i) % 5, kind: i % 2 ? "a" : "b", note: "" }));
    const preview = await client.preview(rows, { label: "kind" });
    assert.equal((preview.problem as { type: string } | null)?.type.startsWith("urn:glle:problem:"), true);
    const dataset = await client.dataset(rows, { label: "kind", ignore: ["note"] });
    assert.deepEqual([dataset.n, dataset.d, dataset.names], [20, 2, ["x", "y"]]);
    const arrays = await dataset.arrays();
    assert.deepEqual(arrays["labels"]?.tolist(), rows.map((row) => row.kind));
    assert.deepEqual(arrays["data"]?.shape, [20, 2]);
    const text = await client.dataset(rows, { label: "kind" }).catch((error: unknown) => error);
    assert.ok(text instanceof InvalidRequestError && /note/.test(text.message) && text.remedy !== "");
    await dataset.delete();
    await assert.rejects(client.dataset(dataset.id), NotFoundError);
  });

  test("draws have the same bits alone, in a batch, in a stream and in float32", async () => {
    const draw = await posterior.draw(7);
    const batch = await posterior.draws(8, { scales: [0.5, 1] });
    assert.deepEqual([draw.shape, batch.shape], [[N, 2], [2, 8, N, 2]]);
    assert.deepEqual(batch.at(1).at(7).data, draw.data);
    const job = await posterior.startDraws(8, { scales: [0.5, 1] });
    const stream = [];
    for await (const part of job.draws()) stream.push(part);
    assert.equal(stream.length, 16);
    assert.deepEqual(stream[15]?.data, draw.data);
    assert.deepEqual(stream[3]?.data, batch.at(0).at(3).data);
    const calibrated = await posterior.startDraws(2, { scale: "auto" }); // the stream begins after the calibration
    for await (const part of calibrated.draws()) stream.push(part);
    assert.deepEqual(stream.at(-1)?.data, (await posterior.draw(1, { scale: "auto" })).data);
    assert.equal(stream.length, 18);
    assert.deepEqual((await posterior.draw(7, { dtype: "float32" })).data, Float32Array.from(draw.data));
    assert.deepEqual(((await job.result()) as typeof batch).data, batch.data);
  });

  test("results have every member of their types", async () => {
    const summary = await posterior.summary(10, { resamples: 4 });
    assert.deepEqual([summary.consensus.shape, summary.covariance.shape], [[N, 2], [N, 2, 2]]);
    const parts = ["draw_spread", "half_sample_spread", "random_k_spread", "larger_sample_spread"] as const;
    for (const name of ["spread", "stability", "local_trust", ...parts] as const) {
      assert.deepEqual(summary[name]?.shape, [N], name);
    }
    assert.deepEqual(Object.keys(summary.quantiles), ["levels", "spread", "stability", "local_trust"]);
    assert.deepEqual([summary.count, summary.calibrated, summary.source], [10, true, "posterior"]);
    assert.deepEqual([summary.center?.shape, summary.half_axes?.shape, summary.resamples], [[N, 2], [N, 2, 2], 4]);
    assert.deepEqual([summary.regions?.levels, summary.regions?.radii.length], [[0.5, 0.9], 2]);
    assert.ok(["high", "moderate", "low"].includes(summary.reliability?.level ?? ""));
    assert.equal((await posterior.summary(10, { scale: 1 })).reliability, undefined);
    assert.ok(Array.isArray(summary.notes) && "spectrum" in summary);

    const calibration = await posterior.calibration();
    assert.equal(summary.scale, calibration.scale);
    for (const name of ["ratio", "rank_correlation", "slope", "saturated", "trace"]) assert.ok(name in calibration, name);
    assert.deepEqual([calibration.half_sample_spread.shape, calibration.draw_spread.shape], [[N], [N]]);

    const placed = await posterior.transform((await sheet.data()).tolist() as number[][], { draws: 3 });
    assert.deepEqual([placed.embedding.shape, placed.distances.shape], [[N, 2], [N]]);
    assert.deepEqual([placed.mean?.shape, placed.covariance?.shape, placed.draws], [[N, 2], [N, 2, 2], 3]);

    const advice = await client.advice(sheet);
    assert.ok((advice.n_neighbors ?? 10) >= 2 && (advice.intrinsic_dimension ?? 2) > 0);
    assert.ok(advice.neighbors_curve.length > 0 && advice.components_curve.length > 0);

    const audit = await client.audit(sheet, { method: "pca", n_neighbors: 8 });
    assert.ok(audit.verdict.length > 0 && audit.remains !== null && audit.groups === null);
    assert.deepEqual([audit.stability?.shape, audit.half_axes?.shape], [[N], [N, 2, 2]]);
    assert.equal((await client.audit(posterior, { n_neighbors: 8 })).method, "glle");
    assert.equal((await client.audit(sheet, { coordinates: audit.embedding })).remains, null);

    assert.deepEqual((await posterior.reconstructions(2)).shape, [2, N, 3]);
    const arrays = await posterior.arrays();
    assert.deepEqual(Object.keys(arrays).sort(), Object.keys(posterior.metadata.arrays).sort());
    assert.deepEqual(arrays["embedding"]?.shape, [N, 2]);
  });

  test("embeddings and comparisons have coordinates and scores", async () => {
    const embedding = await client.embed(sheet, "lle", { parameters: { n_neighbors: 12 }, truth: sheet });
    assert.deepEqual(embedding.embedding.shape, [N, 2]);
    for (const name of ["id", "figures", "notes", "seconds", "scores", "job"]) assert.ok(name in embedding, name);
    const methods = ["pca", { method: "lle", parameters: { n_neighbors: 12 }, label: "twelve" }];
    const comparison = await client.compare(sheet, methods, { align: "first" });
    assert.deepEqual(comparison.rows.map((row) => [row.label, row.problem]), [["pca", null], ["twelve", null]]);
    assert.ok(Object.values(comparison.rows[1]?.scores ?? {}).length > 0);
    for (const name of ["seconds", "eigenvalues", "figures", "notes", "embedding"]) {
      assert.ok(name in (comparison.rows[0] ?? {}), name);
    }
    assert.deepEqual(comparison.arrays["twelve"]?.shape, [N, 2]);
    assert.equal((await client.estimate(sheet, "lle")).problem, null);
    const moved = await embedding.spread({ half_samples: 6 });
    assert.deepEqual([moved.movement.shape, moved.covariance.shape], [[N], [N, 2, 2]]);
    assert.ok(moved.figures.pairs_kept > moved.figures.pairs_by_chance);
  });

  test("new points are placed by the map of an embedding", async () => {
    const array = await sheet.data();
    const points = (array.tolist() as number[][]).slice(0, 5).map((row) => row.map((value) => value + 0.01));
    const pca = await client.embed(sheet, "pca", { scores: [] });
    const known = await pca.transform(sheet);
    for (let i = 0; i < N; i++) {
      for (let j = 0; j < 2; j++) assert.ok(Math.abs(known.embedding.get(i, j) - pca.embedding.get(i, j)) < 1e-9);
    }
    const { mean, components } = (await pca.mapArrays()) as { mean: typeof array; components: typeof array };
    assert.deepEqual([mean.shape, components.shape], [[3], [2, 3]]);
    const places = [await pca.transform(points), await (await client.embedding(pca.id)).transform(await client.dataset(points))];
    for (const { embedding } of places) {
      assert.deepEqual(embedding.shape, [5, 2]);
      points.forEach((point, i) => {
        for (let j = 0; j < 2; j++) {
          const place = point.reduce((sum, value, f) => sum + components.get(j, f) * (value - mean.get(f)), 0);
          assert.ok(Math.abs(embedding.get(i, j) - place) < 1e-9);
        }
      });
    }
    const isomap = await client.embed(sheet, "isomap", { scores: [] });
    assert.deepEqual(await isomap.mapArrays(), {});
    assert.deepEqual((await isomap.transform(points)).embedding.shape, [5, 2]);
    const other = await client.embed(sheet, "laplacian-eigenmaps", { scores: [] });
    await assert.rejects(other.transform(points), (error) => error instanceof InvalidRequestError && /pca/.test(error.remedy));
    await assert.rejects(pca.transform([[1, 2]]), InvalidRequestError);
  });

  test("ids of the rows are those of the file", async () => {
    const csv = `customer_id,x,y\n${Array.from({ length: 20 }, (_, i) => `C-${(7 * i) % 20},${i / 7},${(i * i) % 5}`).join("\n")}\n`;
    const named = await client.dataset(new File([csv], "customers.csv"));
    assert.deepEqual((await named.ids())?.slice(0, 3), ["C-0", "C-7", "C-14"]);
    assert.deepEqual((await named.arrays())["ids"]?.tolist(), await named.ids());
    const counted = await client.dataset(new File([csv.replaceAll("C-", "1")], "customers.csv"), { id: ["customer_id"] });
    assert.deepEqual((await counted.ids())?.slice(0, 3), [10, 17, 114]);
    assert.equal(await sheet.ids(), null);
  });

  test("methods, scores, estimates and lists are typed", async () => {
    assert.ok((await client.methods({ makes: "embedding" })).some((method) => method.name === "pca"));
    assert.ok((await client.scores()).some((score) => score.better === "higher"));
    assert.equal((await client.estimateFit(sheet, { n_neighbors: 10 })).problem, null);
    assert.ok((await client.info()).versions["glle"]);
    const ids = [];
    for await (const one of client.posteriors()) ids.push(one.id);
    assert.ok(ids.includes(posterior.id));
    assert.equal((await client.posterior(posterior.id)).id, posterior.id);
    assert.equal(posterior.spec["n_neighbors"], 10);
    assert.ok(posterior.notes.every((note) => typeof note === "string"));
  });

  test("a job reports events up to its end, which is not repeated", async () => {
    const job = await posterior.startDraws(40, { seed: 5 });
    const events: JobEvent[] = [];
    for await (const event of job.events()) events.push(event);
    const last = events.at(-1) as JobEvent;
    assert.deepEqual([last.event, last.data.status], ["end", "succeeded"]);
    assert.ok(events.slice(0, -1).every((event) => event.event === "progress" && event.data.total > 0));
    for await (const event of job.events({ lastEventId: last.id })) assert.fail(JSON.stringify(event));
    assert.equal((await job.wait()).status, "succeeded");
    const progress: number[] = [];
    await posterior.draws(40, { seed: 6, onProgress: ({ done }) => progress.push(done) });
    assert.equal(progress.at(-1), 40);
  });

  test("a cancelled job ends its draws, its events and its result with a conflict", async () => {
    const many = await client.fit(await client.synthetic("swiss_roll", 3000), { n_neighbors: 12 });
    const job = await many.startDraws(4000, { seed: Math.floor(Math.random() * 2 ** 40) });
    const draws = job.draws();
    assert.deepEqual((await draws.next()).value?.shape, [3000, 2]);
    await job.cancel();
    await assert.rejects(async () => {
      for await (const _ of draws); // those that are made already
    }, ConflictError);
    await assert.rejects(job.result(), ConflictError);
    assert.equal((await job.refresh()).status, "cancelled");
  });

  test("pictures are PNG and SVG", async () => {
    const png = await posterior.picture(7, { width: 400 });
    assert.equal(png.type, "image/png");
    assert.deepEqual([...new Uint8Array(await png.arrayBuffer()).slice(1, 4)], [..."PNG"].map((c) => c.charCodeAt(0)));
    const sheets = [{ scale: 0.5 }, { scales: [0.5] }].map((options) => posterior.picture("draws", { count: 4, ...options }));
    const [one, several] = await Promise.all(sheets.map(async (picture) => (await picture).arrayBuffer()));
    assert.deepEqual(one, several);
    assert.match(await (await posterior.picture("summary", { format: "svg", count: 8 })).text(), /<svg/);
  });
});
