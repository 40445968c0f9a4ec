// Errors of the client: each holds the complete problem of the service.

import type { JobOut, ProblemOut } from "../types.ts";

const OPTION = String.raw`(?:label|color|features|id|ignore|one_hot|missing|header|delimiter|decimal|charset)=[^\s&,;()]*[^\s&,;().]`;
const OPTIONS = new RegExp(String.raw`\?(${OPTION}(?:&${OPTION})*)`, "g");
const LISTS = new Set(["features", "id", "ignore", "one_hot"]);
const EXCERPT = 200; // characters of a body that is no problem

/** Problem of a request, with its remedy: the members of the service's problem+json. Status 0 means no response. */
export class GlleError extends Error {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly remedy: string;
  readonly details: Record<string, unknown>;
  /** Id of the request in the service's log, or null. */
  readonly requestId: string | null;

  constructor(problem: ProblemOut, requestId: string | null = null) {
    super(`${problem.detail} ${inWords(problem.remedy)}`.trim());
    this.name = new.target.name;
    this.type = problem.type;
    this.title = problem.title;
    this.status = problem.status;
    this.detail = problem.detail;
    this.remedy = problem.remedy;
    this.details = problem.details;
    this.requestId = requestId;
  }

  /** Last part of the type, such as `dataset-not-found`. */
  get code(): string {
    return this.type.slice(this.type.lastIndexOf(":") + 1);
  }
}

/** Invalid request or data. */
export class InvalidRequestError extends GlleError {}

/** Missing or unknown key, or a key without the required scope. */
export class AuthError extends GlleError {}

/** Missing or deleted resource. */
export class NotFoundError extends GlleError {}

/** Conflict with the present state: data in use, a cancelled job. */
export class ConflictError extends GlleError {}

/** Rate limit or quota, for longer than the client retries. */
export class RateLimitedError extends GlleError {}

/** No response of the service, or of its servers, for longer than the client retries. */
export class UnavailableError extends GlleError {}

/** Job that runs on beyond the caller's timeout. */
export class JobTimeoutError extends GlleError {}

const STATUSES: readonly (readonly [readonly number[], typeof GlleError])[] = [
  [[400, 405, 406, 413, 415, 422], InvalidRequestError],
  [[401, 403], AuthError],
  [[404, 410], NotFoundError],
  [[409, 412, 423], ConflictError],
  [[429], RateLimitedError],
  [[0, 502, 503, 504], UnavailableError],
];

/** Return a text of the service with its options, such as `?ignore=x`, as those of a method: `{ ignore: ["x"] }`. */
export function inWords(text: string): string {
  return text.replace(OPTIONS, (_, query: string) => {
    const options = new URLSearchParams(query);
    const members = [...new Set(options.keys())].map((name) => {
      const value = LISTS.has(name) ? options.getAll(name) : options.get(name);
      return `${name}: ${JSON.stringify(value)}`;
    });
    return `{ ${members.join(", ")} }`;
  });
}

/** Return the error of a problem, of the class of its status. */
export function problemError(problem: ProblemOut, requestId: string | null = null): GlleError {
  const kind = STATUSES.find(([statuses]) => statuses.includes(problem.status))?.[1] ?? GlleError;
  return new kind(problem, requestId);
}

/** Return the error of a response with an error status. */
export function replyError(status: number, requestId: string | null, text: string): GlleError {
  try {
    const problem: unknown = JSON.parse(text);
    if (isProblem(problem)) return problemError(problem, requestId);
  } catch {
    // the answer of some proxy
  }
  const detail = `${status}: ${text.trim().slice(0, EXCERPT) || "an empty body"}`;
  const remedy = "Check that the URL is that of a glle service, and which proxies are in between.";
  return problemError({ ...problem("about:blank", "No problem of the service", detail, remedy), status }, requestId);
}

/** Return the error of a failed or cancelled job. */
export function jobError(job: JobOut): GlleError {
  const detail = `Job ${job.id} was cancelled.`;
  const remedy = "Send the request again to run it.";
  const cancelled = problem("urn:glle:problem:job-cancelled", "Job cancelled", detail, remedy, { job: job.id });
  return problemError(job.error ?? { ...cancelled, status: 409 });
}

/** Return the error of a service that accepts no connection, or does not answer over one. */
export function unreachableError(url: string, reason: string, isConnected: boolean): GlleError {
  const remedy = isConnected
    ? "Read the log of the service, and which proxies in between close connections early; then call again."
    : "Start the service with `glle up`, or give its address: new Client({ url }), or GLLE_URL.";
  return problemError(
    problem("urn:glle:client:unreachable", "No answer", `No answer from ${url}: ${reason}.`, remedy, { url }),
  );
}

/** Return the error of a job that runs on beyond the caller's timeout. */
export function timeoutError(job: JobOut, seconds: number): JobTimeoutError {
  const detail = `Job ${job.id} had not ended after ${seconds} s; it is ${job.status}.`;
  const remedy = "Increase the timeout, or wait later: (await client.job(id)).wait().";
  const details = { job: job.id, progress: job.progress };
  return new JobTimeoutError(problem("urn:glle:client:job-timeout", "The job goes on", detail, remedy, details));
}

/** Return the error of a result that the cache evicts before it is read. */
export function evictionError(path: string, count: number): GlleError {
  const detail = `The result of ${path} was computed ${count} times, and evicted from the cache each time before it was read.`;
  const remedy = "Request less at once, or have GLLE_CACHE_BYTES increased.";
  return problemError(problem("urn:glle:client:unsettled", "Evicted again and again", detail, remedy));
}

function problem(
  type: string,
  title: string,
  detail: string,
  remedy: string,
  details: Record<string, unknown> = {},
): ProblemOut {
  return { type, title, status: 0, detail, remedy, details };
}

function isProblem(value: unknown): value is ProblemOut {
  const { type, status, detail, remedy, details } = (value ?? {}) as Partial<ProblemOut>;
  const texts = [type, detail, remedy].every((text) => typeof text === "string");
  return texts && typeof status === "number" && typeof details === "object" && details !== null;
}
