// The npz format: a zip archive of npy files. Members are stored or deflated, with 64-bit sizes where they are needed.

import type { NdArray } from "./ndarray.ts";
import { parseNpy } from "./npy.ts";

const END = 0x06054b50;
const END_64 = 0x06064b50;
const MEMBER = 0x02014b50;
const LONGEST_COMMENT = 0xffff;
const IN_EXTRA = 0xffffffff; // the value is in the extra field of 64-bit sizes

/** Return the arrays of an npz file by name. Throw TypeError for another format. */
export async function parseNpz(file: ArrayBuffer | Uint8Array): Promise<Record<string, NdArray>> {
  const bytes = file instanceof Uint8Array ? file : new Uint8Array(file);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let { position, count } = directory(view);
  const arrays: Record<string, NdArray> = {};
  for (; count > 0; count--) {
    if (view.getUint32(position, true) !== MEMBER) throw new TypeError("The directory of the npz is damaged.");
    const method = view.getUint16(position + 10, true);
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((at) => view.getUint16(position + at, true)) as [
      number,
      number,
      number,
    ];
    const name = new TextDecoder().decode(bytes.subarray(position + 46, position + 46 + nameBytes));
    const [size, start] = place(view, position, position + 46 + nameBytes, extraBytes);
    const first = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
    const content = bytes.subarray(first, first + size);
    if (method !== 0 && method !== 8) throw new TypeError(`Member ${name} of the npz is compressed by method ${method}.`);
    arrays[name.replace(/\.npy$/, "")] = parseNpy(method === 8 ? await inflate(content) : content);
    position += 46 + nameBytes + extraBytes + commentBytes;
  }
  return arrays;
}

/** Return the position and the length of the directory, which is at the end of the file. */
function directory(view: DataView): { position: number; count: number } {
  const last = Math.max(0, view.byteLength - 22 - LONGEST_COMMENT);
  for (let at = view.byteLength - 22; at >= last; at--) {
    if (view.getUint32(at, true) !== END) continue;
    const [count, position] = [view.getUint16(at + 10, true), view.getUint32(at + 16, true)];
    if (position !== IN_EXTRA && count !== 0xffff) return { position, count };
    const end = Number(view.getBigUint64(at - 12, true)); // the locator of the 64-bit end precedes the end
    if (view.getUint32(end, true) !== END_64) throw new TypeError("The end of the npz is damaged.");
    return { position: Number(view.getBigUint64(end + 48, true)), count: Number(view.getBigUint64(end + 32, true)) };
  }
  throw new TypeError("The bytes are no npz: they have no directory.");
}

/** Return the compressed size of a member and the position of its local header. */
function place(view: DataView, position: number, extra: number, extraBytes: number): [number, number] {
  const fields = [24, 20, 42].map((at) => view.getUint32(position + at, true)); // size, compressed size, position
  for (let at = extra; at < extra + extraBytes; at += 4 + view.getUint16(at + 2, true)) {
    if (view.getUint16(at, true) !== 1) continue;
    let next = at + 4; // the field has only the values that do not fit in 32 bits, in this order
    fields.forEach((value, i) => {
      if (value !== IN_EXTRA) return;
      fields[i] = Number(view.getBigUint64(next, true));
      next += 8;
    });
  }
  return [fields[1] as number, fields[2] as number];
}

async function inflate(bytes: Uint8Array): Promise<ArrayBuffer> {
  const stream = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
}
