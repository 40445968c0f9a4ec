// Fit and draw with the types of openapi-typescript and the calls of openapi-fetch: node build/main.js
import assert from "node:assert/strict";

import createClient from "openapi-fetch";

import type { components, paths } from "./generated/schema.js";

type Job = components["schemas"]["JobOut"];
type Posterior = components["schemas"]["PosteriorOut"];

const client = createClient<paths>({ baseUrl: process.env["GLLE_URL"] ?? "http://127.0.0.1:8000" });

// Rows of numbers as JSON; the id is a digest of the content.
const rows = Array.from({ length: 200 }, (_, i) => [Math.sin(i / 30), ((i * 7) % 20) / 10, Math.cos(i / 30)]);
const uploaded = await client.POST("/v1/datasets", { body: rows });
assert.ok(uploaded.data, JSON.stringify(uploaded.error));
const dataset = uploaded.data.id;
assert.deepEqual([uploaded.data.n, uploaded.data.d], [200, 3]);

// A fit: 200 or 201 with the posterior, or 202 with a job.
const fitted = await client.POST("/v1/posteriors", {
  params: { query: { wait: 30 } },
  body: { dataset, n_neighbors: 10, n_components: 2 },
});
assert.ok(fitted.data, JSON.stringify(fitted.error));
const posterior = isJob(fitted.data) ? String((await ended(fitted.data)).posterior) : fitted.data.id;

// One draw as JSON and as npy.
const path = { id: posterior, index: 7 };
const draw = await client.GET("/v1/posteriors/{id}/draws/{index}", { params: { path, query: { wait: 30 } } });
assert.equal(draw.response.status, 200, JSON.stringify(draw.error));
assert.deepEqual(shapeOf(draw.data), [200, 2]);
const npy = await client.GET("/v1/posteriors/{id}/draws/{index}", {
  params: { path },
  headers: { Accept: "application/x-npy" },
  parseAs: "arrayBuffer",
});
assert.ok(npy.data instanceof ArrayBuffer && npy.data.byteLength >= 200 * 2 * 8);

// Many draws: a job, and its result.
const started = await client.POST("/v1/posteriors/{id}/draws", {
  params: { path: { id: posterior } },
  body: { count: 8, scales: [0.1, 1] },
});
assert.ok(started.data, JSON.stringify(started.error));
const job = await ended(started.data);
const draws = await client.GET("/v1/jobs/{id}/result", { params: { path: { id: job.id } } });
assert.deepEqual(shapeOf(draws.data), [2, 8, 200, 2]);

// A refusal is a typed problem.
const refused = await client.POST("/v1/posteriors", { body: { dataset, n_neighbors: 199_999 } });
assert.ok(refused.error);
assert.deepEqual([refused.error.status, refused.error.remedy.length > 0], [422, true]);
console.log("fit and draws", posterior);

function isJob(value: Job | Posterior): value is Job {
  return "kind" in value;
}

async function ended(job: Job): Promise<Job> {
  while (job.status !== "succeeded") {
    assert.ok(job.status === "queued" || job.status === "running", JSON.stringify(job.error));
    const params = { path: { id: job.id }, query: { wait: 20 } };
    const { data, error } = await client.GET("/v1/jobs/{id}", { params });
    assert.ok(data, JSON.stringify(error));
    job = data;
  }
  return job;
}

function shapeOf(value: unknown): unknown {
  return (value as { shape: number[] }).shape;
}
