/** HTTP client of the service: keys, problems, JSON and arrays. */

import { address } from './lib/base.js';
import { set, state } from './store.js';

const KEY = 'glle-key';
const JSON_TYPE = 'application/json';
export const NPY = 'application/x-npy';
export const NPZ = 'application/zip';

/** Refused request or unreachable service; `problem` has title, detail, remedy, details. */
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail || problem.title);
    this.problem = problem;
    this.code = (problem.type || '').split(':').pop();
  }
}

/** The user cancelled the work. */
export class Cancelled extends Error {}

/** Store a key for this tab; an empty one removes it. */
export function useKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/**
 * Send a request to the service.
 * @param {string} path
 * @param {{method?: string, body?: any, accept?: string, type?: string, signal?: AbortSignal, onSent?: (share: number)
 * => void}} options
 * @returns {Promise<Response>} of a status below 400
 */
export async function ask(path, { method = 'GET', body, accept = JSON_TYPE, type, signal, onSent } = {}) {
  const headers = { Accept: accept };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  let sent = body;
  if (body !== undefined && type === undefined && !(body instanceof FormData)) {
    headers['Content-Type'] = JSON_TYPE;
    sent = JSON.stringify(body);
  } else if (type) headers['Content-Type'] = type;
  let answer;
  try {
    answer = await (onSent
      ? sendForm(address(path), headers, sent, onSent)
      : wholeAnswer(await fetch(address(path), { method, headers, body: sent, signal })));
  } catch (error) {
    throw broken(error);
  }
  if (answer.status === 401) set({ service: 'locked' });
  if (answer.status >= 400) throw new Refused(await problemOf(answer));
  if (state.service === 'down') set({ service: 'ready' });
  return answer;
}

/** An answer with its body, so that one which breaks off fails here and not where it is read. */
async function wholeAnswer(answer) {
  const bytes = await answer.arrayBuffer();
  return new Response(bytes.byteLength ? bytes : null, answer);
}

/** What to throw for a request, or an answer, that a connection has lost; the banner says so, too. */
function broken(error) {
  if (error.name === 'AbortError') return new Cancelled();
  set({ service: 'down', missed: state.missed + 1 });
  return new Refused({
    type: 'unreachable',
    title: 'The service does not answer',
    detail: 'The page cannot reach the service it came from.',
    remedy: 'Start it again with “glle up”, or look at your connection. The page keeps trying.',
    details: {},
  });
}

/** Post a form by XMLHttpRequest, because fetch does not say how much was sent. */
function sendForm(path, headers, body, onSent) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', path);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.responseType = 'blob';
    request.upload.onprogress = ({ loaded, total }) => onSent(loaded / total);
    request.onload = () =>
      resolve(new Response(request.response, { status: request.status, statusText: request.statusText }));
    request.onerror = () => reject(new TypeError('The service does not answer.'));
    request.send(body);
  });
}

/** Fetch JSON. */
export const askJson = async (path, options) => (await ask(path, options)).json();

/** Read the problem of a refusal, also of a proxy. */
async function problemOf(answer) {
  try {
    const problem = await answer.json();
    if (problem.title) return problem;
  } catch {
    // not JSON: the response of a proxy
  }
  return {
    type: 'http',
    title: `The answer was ${answer.status}`,
    detail: answer.statusText || 'Something before the service refused the request.',
    remedy: 'Try again in a moment.',
    status: answer.status,
    details: {},
  };
}
