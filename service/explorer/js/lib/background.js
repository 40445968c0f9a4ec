/** Computations in the page's worker (`worker.js`), so that none of them holds up a click or a frame. */

import { useEffect, useState } from './html.js';

const LONG = 1000; // items of a list that the worker keeps
const AGAIN_MS = 1000; // until a worker that did not load is started again
const MAX_STARTS = 60; // of a worker that does not load, one after the other

let worker = null;
let isLoaded = false; // whether the worker has answered: before, a call may have to be sent again
let starts = 0; // since a worker has last answered
let count = 0; // of requests and of kept arrays
const waiting = new Map(); // who waits for the answer to a request
let kept = new WeakMap(); // the number of each array that the worker has
const gone = new FinalizationRegistry((number) => worker?.postMessage({ drop: number }));

/** Start the worker, whose answers end the waiting. One that did not load is started again, with the same calls. */
function start() {
  const started = new Worker(new URL('../worker.js', import.meta.url), { type: 'module' });
  started.onmessage = ({ data: { id, made, failure } }) => {
    isLoaded = true;
    starts = 0;
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (failure === undefined) resolve(made);
    else reject(new Error(failure));
  };
  started.onerror = () => {
    if (worker !== started) return;
    started.terminate();
    worker = null;
    isLoaded = false;
    kept = new WeakMap();
    const calls = [...waiting.values()];
    waiting.clear();
    if (++starts < MAX_STARTS) setTimeout(() => calls.forEach(send), AGAIN_MS);
    else calls.forEach(({ reject }) => reject(new Error('The worker of the page does not load. Reload the page.')));
  };
  return started;
}

/** Inputs as they are sent: a long array is sent once, and afterwards called by its number. */
function pack(value) {
  const isView = ArrayBuffer.isView(value);
  if (isView || (Array.isArray(value) && value.length > LONG)) {
    if (!kept.has(value)) {
      const number = ++count;
      const isPart = isView && value.byteLength < value.buffer.byteLength;
      worker.postMessage({ keep: number, value: isPart ? /** @type {any} */ (value).slice() : value });
      kept.set(value, number);
      gone.register(value, number);
    }
    return { kept: kept.get(value) };
  }
  if (value && Object.getPrototypeOf(value) === Object.prototype)
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, pack(member)]));
  return Array.isArray(value) ? value.map(pack) : value;
}

/** Send a call, which waits for its answer; buffers are moved to a worker that has loaded, and copied to another. */
function send(call) {
  worker ??= start();
  const id = ++count;
  try {
    worker.postMessage({ id, name: call.name, inputs: pack(call.inputs) }, isLoaded ? call.moved : []);
    waiting.set(id, call);
  } catch (error) {
    call.reject(error);
  }
}

/**
 * Call a function of the worker by its name. Arrays among the inputs stay as they are: the worker has copies.
 * @param {string} name
 * @param {any} inputs
 * @param {ArrayBuffer[]} [moved] - buffers that the page does not need any more
 * @returns {Promise<any>}
 */
export function compute(name, inputs, moved = []) {
  return new Promise((resolve, reject) => send({ name, inputs, moved, resolve, reject }));
}

/**
 * A function of the worker of whose calls only the newest counts: it waits for the running one, and the others are
 * dropped and give undefined.
 */
export function newest(name) {
  let turn = 0;
  /** @type {Promise<any>} */
  let running = Promise.resolve();
  return async (inputs) => {
    const mine = ++turn;
    await running.catch(() => {});
    if (mine !== turn) return undefined;
    running = compute(name, inputs);
    const made = await running;
    return mine === turn ? made : undefined;
  };
}

/**
 * What a computation has made of the inputs, for a component: null until it is there.
 * @param {() => Promise<any> | null} ask - gives undefined if a newer call has replaced it
 */
export function useComputed(ask, inputs) {
  const [found, setFound] = useState({ inputs: null, made: null });
  useEffect(() => {
    let isLast = true;
    ask()?.then((made) => isLast && made !== undefined && setFound({ inputs, made }));
    return () => (isLast = false);
  }, inputs);
  return found.inputs && inputs.every((one, i) => one === found.inputs[i]) ? found.made : null;
}
