// Session of a client: calls with retries, jobs followed to their end, results.

import { parseNpy } from "../arrays/npy.ts";
import type { NdArray } from "../arrays/ndarray.ts";
import type { JobOut, ProgressOut } from "../types.ts";
import { type Call, Connection, type Endpoint, Failure, type Query } from "./connection.ts";
import { evictionError, jobError, replyError, timeoutError, unreachableError } from "./errors.ts";
import { isRepeatable, isTemporary, pause, type Retries, sleep } from "./retries.ts";

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, and waiting for its job; the promise rejects with the reason. A running job is not cancelled. */
  signal?: AbortSignal | undefined;
}

/** Options of a call that waits for a job. */
export interface WaitOptions extends CallOptions {
  /** Seconds until JobTimeoutError; by default no limit. The job goes on. */
  timeout?: number | undefined;
  /** Receives the progress of the job several times a second. */
  onProgress?: ((progress: ProgressOut) => void) | undefined;
}

/** Response in memory. */
export interface Reply {
  status: number;
  bytes: Uint8Array;
}

const ACCEPTED = 202;
const OPEN = new Set(["queued", "running", "cancelling"]);
const LONG_POLL = 20; // seconds
const SMOOTH_POLL = 0.4; // seconds; with onProgress
const SOON = 0.05; // seconds; the service did not wait if it answered a poll sooner
const EVICTIONS = 5;
export const JSON_MEDIA = "application/json";
export const NPY = "application/x-npy";
export const NPZ = "application/zip";

/** Connection of one client to one service. */
export class Session {
  readonly endpoint: Endpoint;
  readonly retries: Retries;

  constructor(endpoint: Endpoint, retries: Retries) {
    this.endpoint = endpoint;
    this.retries = retries;
  }

  /** Send a call until it succeeds, the deadline passes, or a repetition could have two effects. */
  async open(call: Call, signal?: AbortSignal): Promise<Connection> {
    return this.#attempts(call, signal, async (connection) => connection);
  }

  /** Send a call, and read the response. */
  async send(call: Call, options: CallOptions = {}): Promise<Reply> {
    return this.#attempts(call, options.signal, async (connection) => {
      return { status: connection.status, bytes: await connection.bytes() };
    });
  }

  /** Send a call, and again after the job of each 202, until the reply is the result. */
  async fetch(call: Call, options: WaitOptions = {}): Promise<Reply> {
    const started = now();
    for (let i = 0; i < EVICTIONS; i++) {
      const reply = await this.send(call, options);
      if (reply.status !== ACCEPTED) return reply;
      await this.follow(json<JobOut>(reply), remaining(options, started));
    }
    throw evictionError(call.path, EVICTIONS);
  }

  /** Send a GET, and return its JSON. */
  async get<T>(path: string, query: Query = {}, options: WaitOptions = {}): Promise<T> {
    return json<T>(await this.fetch({ method: "GET", path, query }, options));
  }

  /** Send a GET, and return its array. */
  async array(path: string, query: Query, options: WaitOptions = {}): Promise<NdArray> {
    return parseNpy((await this.fetch({ method: "GET", path, query, accept: NPY }, options)).bytes);
  }

  /** Submit a job, follow it, and return its description. */
  async run(path: string, body: object, options: WaitOptions = {}): Promise<JobOut> {
    const started = now();
    const reply = await this.send(command(path, body), options);
    return this.follow(json<JobOut>(reply), remaining(options, started));
  }

  /** Wait until a job has succeeded; throw its problem, or JobTimeoutError after `timeout` seconds. */
  async follow(job: JobOut, options: WaitOptions = {}): Promise<JobOut> {
    const { timeout, signal, onProgress } = options;
    const started = now();
    while (OPEN.has(job.status)) {
      onProgress?.(job.progress);
      const sent = now();
      const left = timeout === undefined ? Number.POSITIVE_INFINITY : timeout - (sent - started);
      if (left <= 0) throw timeoutError(job, timeout as number);
      const wait = Math.min(onProgress === undefined ? LONG_POLL : SMOOTH_POLL, left);
      const call: Call = { method: "GET", path: pathOf("jobs", job.id), query: { wait } };
      job = json<JobOut>(await this.send(call, { signal }));
      if (OPEN.has(job.status) && now() - sent < Math.min(SOON, wait)) await sleep(Math.min(1, left), signal);
    }
    if (job.status !== "succeeded") throw jobError(job);
    onProgress?.(job.progress);
    return job;
  }

  async #attempts<T>(
    call: Call,
    signal: AbortSignal | undefined,
    read: (connection: Connection) => Promise<T>,
  ): Promise<T> {
    const started = now();
    const again = async (attempt: number, retryAfter: string | null, isConnected: boolean): Promise<boolean> => {
      const seconds = pause(this.retries, attempt, now() - started, retryAfter, isConnected);
      if (!isRepeatable(call) || seconds === null) return false;
      await sleep(seconds, signal);
      return true;
    };
    for (let attempt = 0; ; attempt++) {
      try {
        const connection = await Connection.open(this.endpoint, call, signal);
        const { status, headers } = connection;
        const isRepeatedDelete = call.method === "DELETE" && attempt > 0 && status === 404; // its first reply was lost
        if (status < 300 || isRepeatedDelete) return await read(connection);
        const text = new TextDecoder().decode(await connection.bytes());
        if (isTemporary(status) && (await again(attempt, headers.get("retry-after"), true))) continue;
        throw replyError(status, headers.get("x-request-id"), text);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        const { isConnected, message } = error;
        if (!(await again(attempt, null, isConnected))) throw unreachableError(this.endpoint.url, message, isConnected);
      }
    }
  }
}

/** Return a POST of JSON with a new Idempotency-Key. */
export function command(path: string, body: object, query: Query = {}): Call {
  return { method: "POST", path, query, body: jsonBody(body), key: newKey() };
}

/** Return a POST of JSON whose result is named by its content. */
export function question(path: string, body: object, query: Query = {}): Call {
  return { method: "POST", path, query, body: jsonBody(body), byContent: true };
}

/** Return the JSON of a reply. */
export function json<T>(reply: Reply): T {
  return JSON.parse(new TextDecoder().decode(reply.bytes)) as T;
}

/** Return the path of a resource, or of something below it. */
export function pathOf(kind: string, id: string, ...parts: string[]): string {
  return ["/v1", kind, encodeURIComponent(id), ...parts].join("/");
}

/** Return options of a method apart: those of the call, and those of the API. */
export function split<T extends WaitOptions>(options: T): [WaitOptions, Omit<T, keyof WaitOptions>] {
  const { signal, timeout, onProgress, ...rest } = options;
  return [{ signal, timeout, onProgress }, rest];
}

/** Return options with the seconds that are left of their timeout. */
function remaining(options: WaitOptions, started: number): WaitOptions {
  if (options.timeout === undefined) return options;
  return { ...options, timeout: Math.max(0, options.timeout - (now() - started)) };
}

function jsonBody(body: object): { media: string; content: string } {
  const plain = (name: string, value: unknown): unknown => {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new TypeError(`${name} is ${value}, which JSON cannot hold. Give a finite number.`);
    }
    return ArrayBuffer.isView(value) ? Array.from(value as never) : value;
  };
  return { media: JSON_MEDIA, content: JSON.stringify(body, plain) };
}

/** Return 128 random bits; crypto.randomUUID exists only in secure contexts. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function now(): number {
  return performance.now() / 1000;
}
