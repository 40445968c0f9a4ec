// The main job in JavaScript (node 18 or newer, or a browser without the files): upload a table, fit, one draw,
// many draws. `make up` runs in another terminal.
import { readFile, writeFile } from "node:fs/promises";

const URL_ = process.env.GLLE_URL ?? "http://127.0.0.1:8000";
const KEY = process.env.GLLE_KEY ? { Authorization: `Bearer ${process.env.GLLE_KEY}` } : {};

// Returns the response, or throws the problem with its remedy.
async function ask(path, { headers, ...options } = {}) {
  const response = await fetch(URL_ + path, { ...options, headers: { ...KEY, ...headers } });
  if (response.ok) return response;
  const problem = await response.json();
  throw new Error(`${problem.title}: ${problem.detail} ${problem.remedy}`);
}

function post(path, body) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body) });
}

// Waits for a job's end by long polls.
async function follow(job) {
  while (["queued", "running", "cancelling"].includes(job.status)) {
    job = await (await ask(`/v1/jobs/${job.id}?wait=20`)).json();
  }
  if (job.status !== "succeeded") throw new Error(`Job ${job.id} ${job.status}: ${job.error?.detail ?? ""}`);
}

// Reads the npy format: a header with dtype and shape, then the values, little-endian, in C order.
function npy(buffer) {
  const view = new DataView(buffer);
  const start = view.getUint8(6) === 1 ? 10 : 12;
  const length = start === 10 ? view.getUint16(8, true) : view.getUint32(8, true);
  const header = new TextDecoder("latin1").decode(buffer.slice(start, start + length));
  const [, dtype] = header.match(/'descr': '([^']+)'/);
  const shape = header.match(/'shape': \(([^)]*)\)/)[1].split(",").filter((s) => s.trim()).map(Number);
  const kinds = { "<f8": Float64Array, "<f4": Float32Array };
  return { shape, values: new kinds[dtype](buffer.slice(start + length)) };
}

async function array(path, file) {
  const response = await ask(path, { headers: { Accept: "application/x-npy" } });
  const buffer = await response.arrayBuffer();
  await writeFile(file, Buffer.from(buffer));
  return npy(buffer);
}

// 1. Upload. The id is the digest of the content: the same data is the same resource.
const csv = await readFile(process.argv[2] ?? "sheet.csv");
const sheet = await (
  await ask("/v1/datasets", { method: "POST", headers: { "Content-Type": "text/csv" }, body: csv })
).json();
console.log("data set  ", sheet.id);

// 2. Fit on a worker: 202 and a job, or an existing posterior at once.
const answer = await post("/v1/posteriors", { dataset: sheet.id, n_neighbors: 10 });
const fit = await answer.json();
if (answer.status === 202) await follow(fit);
const posterior = answer.status === 202 ? fit.posterior : fit.id;
console.log("posterior ", posterior);

// 3. One draw. Draw 7 of seed 0 is the same bits today, tomorrow, alone or in a batch.
const draw = await array(`/v1/posteriors/${posterior}/draws/7?wait=30`, "draw.npy");

// 4. Eight draws at each of three scales: a job, then its result with shape (3, 8, n, 2).
const job = await (await post(`/v1/posteriors/${posterior}/draws`, { count: 8, scales: [0.1, 1, 10] })).json();
await follow(job);
const draws = await array(`/v1/jobs/${job.id}/result`, "draws.npy");
console.log("draws      draw.npy draws.npy");

// The batch at scale 1 has the single draw in it.
const [, count, n, p] = draws.shape;
const seventh = draws.values.subarray((count + 7) * n * p, (count + 8) * n * p);
if (draw.values.some((value, i) => value !== seventh[i])) throw new Error("Draw 7 differs from that of the batch.");
