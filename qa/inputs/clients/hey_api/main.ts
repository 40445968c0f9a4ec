// Fit and draw with the client that @hey-api/openapi-ts generates: node build/main.js
import assert from "node:assert/strict";

import { client } from "./generated/client.gen.js";
import { drawMany, drawOne, fit, getJob, getResult, upload } from "./generated/index.js";
import type { JobOut, PosteriorOut } from "./generated/index.js";

client.setConfig({ baseUrl: process.env["GLLE_URL"] ?? "http://127.0.0.1:8000" });

// Rows of numbers as JSON; the id is a digest of the content.
const rows = Array.from({ length: 200 }, (_, i) => [Math.sin(i / 30), ((i * 7) % 20) / 10, Math.cos(i / 30)]);
const uploaded = await upload({ body: rows });
assert.ok(uploaded.data, JSON.stringify(uploaded.error));
const dataset = uploaded.data.id;
assert.deepEqual([uploaded.data.n, uploaded.data.d], [200, 3]);

// A fit: 200 or 201 with the posterior, or 202 with a job.
const fitted = await fit({ query: { wait: 30 }, body: { dataset, n_neighbors: 10, n_components: 2 } });
assert.ok(fitted.data, JSON.stringify(fitted.error));
const posterior = isJob(fitted.data) ? String((await ended(fitted.data)).posterior) : fitted.data.id;

// One draw as JSON and as npy.
const path = { id: posterior, index: 7 };
const draw = await drawOne({ path, query: { wait: 30 } });
assert.equal(draw.response?.status, 200, JSON.stringify(draw.error));
assert.deepEqual(shapeOf(draw.data), [200, 2]);
const npy = await drawOne({ path, headers: { Accept: "application/x-npy" }, parseAs: "arrayBuffer" });
const bytes: unknown = npy.data;
assert.ok(bytes instanceof ArrayBuffer && bytes.byteLength >= 200 * 2 * 8);

// Many draws: a job, and its result.
const started = await drawMany({ path: { id: posterior }, body: { count: 8, scales: [0.1, 1] } });
assert.ok(started.data, JSON.stringify(started.error));
const job = await ended(started.data);
const draws = await getResult({ path: { id: job.id } });
assert.deepEqual(shapeOf(draws.data), [2, 8, 200, 2]);

// A refusal is a typed problem.
const refused = await fit({ body: { dataset, n_neighbors: 199_999 } });
assert.ok(refused.error);
assert.deepEqual([refused.error.status, refused.error.remedy.length > 0], [422, true]);
console.log("fit and draws", posterior);

function isJob(value: JobOut | PosteriorOut): value is JobOut {
  return "kind" in value;
}

async function ended(job: JobOut): Promise<JobOut> {
  while (job.status !== "succeeded") {
    assert.ok(job.status === "queued" || job.status === "running", JSON.stringify(job.error));
    const { data, error } = await getJob({ path: { id: job.id }, query: { wait: 20 } });
    assert.ok(data, JSON.stringify(error));
    job = data;
  }
  return job;
}

function shapeOf(value: unknown): unknown {
  return (value as { shape: number[] }).shape;
}
