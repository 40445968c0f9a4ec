// The client's rules about requests, with a function in place of the network.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  AuthError, Client, type ClientOptions, GlleError, InvalidRequestError, JobTimeoutError, NdArray, parseNpy,
  UnavailableError, writeNpy,
} from "../src/index.ts";

type Answer = Response | Error | ((request: Request) => Response | Promise<Response>);

const QUICK = { first: 0.001, longest: 0.002 };
const PROBLEM = {
  type: "urn:glle:problem:not-a-number",
  title: "Text",
  status: 422,
  detail: "Column note is text.",
  remedy: "Send ?ignore=note or ?label=note.",
  details: { column: "note" },
};
const JOB = {
  id: "job_1", kind: "draws", status: "running", progress: { done: 0, total: 3, stage: "drawing", eta: null },
  posterior: "post_1", dataset: null, error: null, links: {},
};

/** Return a client, and the requests that it sends; each gets the next answer. */
function scripted(answers: Answer[], options: ClientOptions = {}): { client: Client; requests: Request[] } {
  const requests: Request[] = [];
  const send = async (url: string | URL | Request, init?: RequestInit): Promise<Response> => {
    init?.signal?.throwIfAborted();
    requests.push(new Request(url, init));
    const answer = answers.shift();
    if (answer === undefined) throw new Error(`There is no answer for ${url}.`);
    if (answer instanceof Error) throw answer;
    return typeof answer === "function" ? answer(requests.at(-1) as Request) : answer;
  };
  return { client: new Client({ url: "http://service/", retries: QUICK, ...options, fetch: send }), requests };
}

const problem = (status: number, headers: Record<string, string> = {}): Response =>
  Response.json({ ...PROBLEM, status }, { status, headers });

const lost = (code: string): Error => Object.assign(new TypeError("fetch failed"), { cause: { code, message: code } });

/** Response whose connection is lost after some bytes. */
function broken(...pieces: (string | Uint8Array)[]): Response {
  const bytes = pieces.map((piece) => (typeof piece === "string" ? new TextEncoder().encode(piece) : piece));
  const pull = (controller: ReadableStreamDefaultController): void => {
    const piece = bytes.shift();
    if (piece === undefined) controller.error(lost("ECONNRESET"));
    else controller.enqueue(piece);
  };
  return new Response(new ReadableStream({ pull }));
}

test("a problem is an error of its class, with all members", async () => {
  const { client } = scripted([problem(422, { "x-request-id": "abc" }), problem(401)]);
  const error = await client.info().catch((reason: unknown) => reason);
  assert.ok(error instanceof InvalidRequestError && error instanceof GlleError && error instanceof Error);
  assert.deepEqual(
    [error.code, error.status, error.title, error.detail, error.remedy, error.details, error.requestId],
    ["not-a-number", 422, "Text", "Column note is text.", PROBLEM.remedy, { column: "note" }, "abc"],
  );
  assert.equal(error.message, 'Column note is text. Send { ignore: ["note"] } or { label: "note" }.');
  await assert.rejects(client.info(), AuthError);
});

test("an answer that is no problem is described", async () => {
  const { client } = scripted([new Response("<h1>Not here</h1>", { status: 404 })]);
  await assert.rejects(client.info(), /404: <h1>Not here<\/h1> Check that the URL/);
});

test("the key is a bearer, and a POST has one Idempotency-Key for all attempts", async () => {
  const { client, requests } = scripted([problem(503), lost("ECONNRESET"), Response.json({ id: "post_1" })], { key: "k" });
  await client.fit("ds_1", { n_neighbors: 12 });
  const keys = requests.map((request) => request.headers.get("idempotency-key"));
  assert.match(keys[0] as string, /^[0-9a-f]{32}$/);
  assert.equal(new Set(keys).size, 1);
  assert.equal(requests[2]?.headers.get("authorization"), "Bearer k");
  assert.deepEqual(await requests[2]?.json(), { dataset: "ds_1", n_neighbors: 12 });
  const again = scripted([Response.json({ id: "post_1" })]);
  await again.client.fit("ds_1", { neighbors: "ds_2" });
  assert.deepEqual(await again.requests[0]?.clone().json(), { dataset: "ds_1", neighbors: "ds_2" });
  assert.notEqual(again.requests[0]?.headers.get("idempotency-key"), keys[0]);
});

test("429 and 503 are sent again not before Retry-After, and not after the deadline", async () => {
  const { client, requests } = scripted([problem(429, { "retry-after": "0" }), problem(503), Response.json({})]);
  await client.info();
  assert.equal(requests.length, 3);
  for (const later of ["1000", new Date(Date.now() + 1e6).toUTCString()]) {
    const late = scripted([problem(503, { "retry-after": later }), Response.json({})]);
    await assert.rejects(late.client.info(), UnavailableError);
  }
});

test("other refusals are not sent again", async () => {
  const { client, requests } = scripted([problem(409)]);
  await assert.rejects(client.info(), { status: 409 });
  assert.equal(requests.length, 1);
});

test("no connection is an error with the address", async () => {
  const { client } = scripted([lost("ECONNREFUSED")], { retries: { deadline: 0 } });
  await assert.rejects(client.info(), (error: GlleError) => error.status === 0 && /http:\/\/service.*GLLE_URL/.test(error.message));
});

test("a second DELETE that finds nothing has succeeded", async () => {
  const { client } = scripted([Response.json({ id: "post_1" }), lost("ECONNRESET"), problem(404)]);
  await (await client.posterior("post_1")).delete();
});

test("an abort rejects with its reason at once, also between two attempts", async () => {
  const { client, requests } = scripted([problem(503)], { retries: { first: 60, longest: 60 } });
  const controller = new AbortController();
  const info = client.info({ signal: controller.signal });
  setTimeout(() => controller.abort(new Error("enough")), 20);
  await assert.rejects(info, /enough/);
  assert.equal(requests.length, 1);
  await assert.rejects(client.info({ signal: AbortSignal.abort(new Error("before")) }), /before/);
  assert.equal(requests.length, 1);
});

test("silence is a lost connection", async () => {
  const never = (request: Request): Promise<Response> =>
    new Promise((_, reject) => request.signal.addEventListener("abort", () => reject(request.signal.reason)));
  const { client } = scripted([never], { timeout: 0.05, retries: { deadline: 0 } });
  await assert.rejects(client.info(), /silent/);
});

test("a job beyond its timeout is an error that names the job", async () => {
  const { client } = scripted([Response.json(JOB), ...Array.from({ length: 50 }, () => () => Response.json(JOB))]);
  const job = await client.job("job_1");
  await assert.rejects(job.wait({ timeout: 0.1 }), (error) => error instanceof JobTimeoutError && error.details["job"] === "job_1");
});

test("a failed job throws its problem", async () => {
  const { client } = scripted([Response.json({ ...JOB, status: "failed", error: PROBLEM })]);
  await assert.rejects((await client.job("job_1")).wait(), { code: "not-a-number" });
});

test("events are resumed by Last-Event-ID after a lost connection", async () => {
  const { client, requests } = scripted([
    Response.json(JOB),
    broken('retry: 1\n\nid: 3\nevent: progress\ndata: {"done": 1}\n\nid: 4\nevent: prog'),
    lost("ECONNRESET"),
    new Response('id: 5\nevent: progress\ndata: {"done": 2}\n\nid: 6\nevent: end\ndata: {"status": "succeeded"}\n\n'),
  ]);
  const events = [];
  for await (const event of (await client.job("job_1")).events()) events.push([event.id, event.event]);
  assert.deepEqual(events, [["3", "progress"], ["5", "progress"], ["6", "end"]]);
  assert.deepEqual(requests.map((request) => request.headers.get("last-event-id")), [null, null, "3", "3"]);
});

test("events after the end are none", async () => {
  const { client } = scripted([Response.json(JOB), new Response(null, { status: 204 })]);
  for await (const event of (await client.job("job_1")).events({ lastEventId: "6" })) assert.fail(JSON.stringify(event));
});

test("draws arrive one by one, and none twice after a lost connection", async () => {
  const file = writeNpy(new NdArray(Float64Array.from({ length: 12 }, (_, i) => i), [3, 2, 2], "float64"));
  const start = file.length - 96;
  const { client } = scripted([
    Response.json(JOB),
    broken(file.subarray(0, 5), file.subarray(5, start + 40)),
    Response.json(JOB),
    new Response(file),
  ]);
  const draws = [];
  for await (const draw of (await client.job("job_1")).draws()) draws.push(draw.tolist());
  assert.deepEqual(draws, [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]);
});

test("draws begin once their scale is known", async () => {
  const file = writeNpy(new NdArray(Float64Array.of(1, 2), [1, 1, 2], "float64"));
  const { client } = scripted([Response.json(JOB), Response.json(JOB, { status: 202 }), new Response(file)]);
  const draws = [];
  for await (const draw of (await client.job("job_1")).draws()) draws.push(draw.tolist());
  assert.deepEqual(draws, [[[1, 2]]]);
});

test("draws that stay away are an error", async () => {
  const answers = Array.from({ length: 5 }, () => [broken(), Response.json(JOB)]).flat();
  const { client } = scripted([Response.json(JOB), ...answers]);
  await assert.rejects((await client.job("job_1")).draws().next(), UnavailableError);
});

test("draws of a job that fails throw its problem", async () => {
  const file = writeNpy(new NdArray(new Float64Array(12), [3, 2, 2], "float64"));
  const { client } = scripted([
    Response.json(JOB),
    broken(file.subarray(0, file.length - 96 + 40)),
    Response.json({ ...JOB, status: "failed", error: PROBLEM }),
  ]);
  const draws = (await client.job("job_1")).draws();
  assert.equal((await draws.next()).done, false);
  await assert.rejects(draws.next(), { code: "not-a-number" });
});

test("data are sent as npy, CSV or as the file", async () => {
  const made = (): Response => Response.json({ id: "ds_1" });
  const { client, requests } = scripted([made(), made(), made()]);
  await client.dataset([[1, 2], [3, 4]]);
  await client.dataset([{ x: 1, y: 0.5, note: 'a "b", c' }, { x: 2, y: null, note: "d" }], { label: "note" });
  await client.dataset(new File(["x;y\n"], "Table.CSV", { type: "application/vnd.ms-excel" }), { ignore: ["x*", "y"] });
  const [array, rows, file] = requests as [Request, Request, Request];
  assert.deepEqual(parseNpy(await array.arrayBuffer()).tolist(), [[1, 2], [3, 4]]);
  assert.equal(await rows.text(), 'x,y,note\n1,0.5,"a ""b"", c"\n2,,d\n');
  assert.equal(new URL(rows.url).searchParams.get("label"), "note");
  assert.equal(file.headers.get("content-type"), "text/csv");
  assert.deepEqual(new URL(file.url).searchParams.getAll("ignore"), ["x*", "y"]);
});

test("data that cannot be sent are refused with a remedy", async () => {
  const { client } = scripted([]);
  await assert.rejects(client.dataset(new Blob(["x"])), /Name it with one of .*\.csv/);
  await assert.rejects(client.dataset([[1, 2]], { label: "x" }), /needs named columns/);
  await assert.rejects(client.fit("sheet.csv"), /no id of a data set/);
  await assert.rejects(client.dataset([{ x: new Date() }] as never), /Row 0, column x/);
  await assert.rejects(client.fit("ds_1", { reg: Number.NaN }), /reg is NaN/);
  assert.throws(() => new Client({ url: "localhost" }), /no URL/);
  assert.throws(() => new Client("localhost"), /no URL/);
  assert.equal(new Client("http://service/").url, "http://service");
});

test("methods that take data take the roles of its columns", async () => {
  const made = (): Response => Response.json({ id: "ds_1" });
  const done = (): Response => Response.json({ ...JOB, status: "succeeded" }, { status: 202 });
  const found = (): Response => Response.json({ rows: [] });
  const needs = (): Response => Response.json({ items: [{ name: "trustworthiness", needs: "nothing" }] });
  const methods = (): Response => Response.json({ items: [{ name: "pca", needs_labels: false }] });
  const { client, requests } = scripted([
    made(), Response.json({ id: "post_1" }), made(), Response.json({}), made(), done(), found(), made(), done(), found(),
    made(), needs(), methods(), done(), found(),
  ]);
  const rows = [{ x: 1, kind: "a", note: "b" }, { x: 2, kind: "b", note: "c" }];
  const roles = { label: "kind", ignore: ["note"] };
  await client.fit(rows, { ...roles, n_neighbors: 5 });
  await client.estimateFit(rows, { ...roles, n_neighbors: 5 });
  await client.advice(rows, { ...roles, n_components: 2 });
  await client.compare(rows, ["pca", "lle"], roles);
  await client.compare(rows, ["pca"], { ...roles, scores: ["trustworthiness"] });
  const uploads = requests.filter(({ url }) => new URL(url).pathname === "/v1/datasets");
  assert.deepEqual(uploads.map(({ url }) => new URL(url).searchParams.get("label")), Array(5).fill("kind"));
  assert.deepEqual(uploads.map(({ url }) => new URL(url).searchParams.getAll("ignore")), Array(5).fill(["note"]));
  assert.deepEqual(await requests[1]?.json(), { dataset: "ds_1", n_neighbors: 5 });
  assert.deepEqual(await requests[5]?.json(), { dataset: "ds_1", n_components: 2 });
  assert.equal((await requests[8]?.json())?.labels, "ds_1");
  assert.equal((await requests[13]?.json())?.labels, null); // no score uses them
  await assert.rejects(client.fit("ds_1", { label: "kind" }), /stored with the roles of its columns. Leave out label/);
  await assert.rejects(client.dataset("ds_1", { label: "kind" }), /Leave out label/);
  await assert.rejects(client.embed(rows, "pca", { label: "kind", labels: [1, 2] }), /give one of them/i);
});

test("labels are numbers or the ranks of words", async () => {
  const job = { ...JOB, kind: "embedding", status: "succeeded" };
  const { client, requests } = scripted([
    Response.json({ id: "ds_2" }),
    Response.json(job, { status: 202 }),
    Response.json({ arrays: { embedding: { shape: [2, 1], dtype: "float64", data: [[1], [null]] } }, notes: [] }),
  ]);
  const embedding = await client.embed("ds_1", "pca", { labels: ["b", "a", "b"], parameters: { n_components: 1 } });
  assert.deepEqual(parseNpy(await (requests[0] as Request).arrayBuffer()).tolist(), [[1], [0], [1]]);
  assert.equal((await requests[1]?.json())?.labels, "ds_2");
  assert.deepEqual([embedding.embedding.tolist(), embedding.job], [[[1], [Number.NaN]], "job_1"]);
});

test("a list reads page after page", async () => {
  const pages = [{ items: [{ id: "ds_1" }], next: "c" }, { items: [], next: "d" }, { items: [{ id: "ds_2" }], next: null }];
  const { client, requests } = scripted(pages.map((page) => Response.json(page)));
  const ids = [];
  for await (const dataset of client.datasets({ tag: ["demo"] })) ids.push(dataset.id);
  assert.deepEqual(ids, ["ds_1", "ds_2"]);
  assert.deepEqual(requests.map((request) => new URL(request.url).searchParams.get("cursor")), [null, "c", "d"]);
});

test("an import sends the file, again after a lost connection, and is the posterior", async () => {
  const posterior = Response.json({ id: "post_2", n: 3, spec: {} }, { status: 201 });
  const { client, requests } = scripted([lost("ECONNRESET"), posterior]);
  const imported = await client.importPosterior(new Blob(["PK.."]));
  assert.equal(imported.id, "post_2");
  for (const request of requests) {
    assert.deepEqual([request.method, new URL(request.url).pathname], ["POST", "/v1/posteriors/import"]);
    assert.equal(request.headers.get("content-type"), "application/zip");
  }
  assert.equal(requests.length, 2);
});
