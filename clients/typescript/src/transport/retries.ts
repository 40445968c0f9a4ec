// Retries: which calls are repeated, after which pauses, until when.

import type { Call } from "./connection.ts";

/** Retry policy of a client, in seconds. A call without a key or a name by content is never sent twice. */
export interface Retries {
  /** Limit of one call with all its attempts; no pause ends later. 0: one attempt. */
  deadline: number;
  /** The same limit while no connection is made: a service may be starting, or absent. */
  connect: number;
  /** First pause, which doubles. The client waits a random part, at least one half. */
  first: number;
  /** Longest pause, unless `Retry-After` is longer. */
  longest: number;
}

export const RETRIES: Retries = { deadline: 120, connect: 5, first: 0.25, longest: 20 };

const STATUSES = new Set([429, 502, 503, 504]);

/** Whether two such requests have the effect of one. */
export function isRepeatable(call: Call): boolean {
  return call.method !== "POST" || call.key !== undefined || call.byContent === true;
}

/** Whether a status is temporary. */
export function isTemporary(status: number): boolean {
  return STATUSES.has(status);
}

/** Return the seconds until attempt `attempt` + 1, or null if it would be after the deadline; attempts count from 0. */
export function pause(
  retries: Retries,
  attempt: number,
  elapsed: number,
  retryAfter: string | null,
  isConnected: boolean,
): number | null {
  const backoff = Math.min(retries.longest, retries.first * 2 ** Math.min(attempt, 60));
  const seconds = Math.max(backoff * (0.5 + 0.5 * Math.random()), secondsOf(retryAfter));
  const limit = isConnected ? retries.deadline : Math.min(retries.connect, retries.deadline);
  return elapsed + seconds <= limit ? seconds : null;
}

/** Return the seconds of a Retry-After: a number, or an HTTP date; 0 for another text. */
function secondsOf(header: string | null): number {
  if (header === null) return 0;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return seconds;
  const date = Date.parse(header);
  return Number.isNaN(date) ? 0 : (date - Date.now()) / 1000;
}

/** Wait; throw the reason of an aborted signal. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, 1000 * seconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
