import assert from "node:assert/strict";
import { test } from "node:test";

import { NdArray, parseNpy, parseNpz, writeNpy } from "../src/index.ts";

/** Return an npy file of a header and values. */
function npy(header: string, values: ArrayBufferView, version: 1 | 2 | 3 = 1): Uint8Array {
  const text = new TextEncoder().encode(`${header}\n`);
  const length = version === 1 ? [text.length & 255, text.length >> 8] : [text.length & 255, text.length >> 8, 0, 0];
  const data = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return Uint8Array.from([0x93, ...new TextEncoder().encode("NUMPY"), version, 0, ...length, ...text, ...data]);
}

const header = (descr: string, shape: string, order = "False"): string =>
  `{'descr': '${descr}', 'fortran_order': ${order}, 'shape': ${shape}, }`;

const SAMPLES: [string, string, ArrayBufferView][] = [
  ["<f8", "float64", Float64Array.of(0.1, -0, 5e-324, Number.MAX_VALUE, Number.NaN, Number.NEGATIVE_INFINITY)],
  ["<f4", "float32", Float32Array.of(0.5, -1, 2 ** 100, 0, 1, 2)],
  ["<i8", "int64", BigInt64Array.of(-(2n ** 63n), 2n ** 63n - 1n, 0n, 1n, 2n, 3n)],
  ["<u8", "uint64", BigUint64Array.of(2n ** 64n - 1n, 0n, 1n, 2n, 3n, 4n)],
  ["<i4", "int32", Int32Array.of(-(2 ** 31), 2 ** 31 - 1, 0, 1, 2, 3)],
  ["|b1", "bool", Uint8Array.of(0, 1, 1, 0, 1, 0)],
];

for (const [descr, dtype, values] of SAMPLES) {
  for (const version of [1, 2, 3] as const) {
    test(`${dtype} of version ${version} is read to the bit`, () => {
      const array = parseNpy(npy(header(descr, "(2, 3)"), values, version));
      assert.deepEqual([array.dtype, array.shape], [dtype, [2, 3]]);
      assert.deepEqual(array.data, values);
    });
  }

  test(`${dtype} is written and read to the bit`, () => {
    const file = writeNpy(parseNpy(npy(header(descr, "(3, 2)"), values)));
    assert.equal(new DataView(file.buffer).getUint16(8, true) % 64, 64 - 10); // the values are aligned
    const array = parseNpy(file);
    assert.deepEqual([array.dtype, array.shape, array.data], [dtype, [3, 2], values]);
  });
}

test("Fortran order is the transpose", () => {
  const array = parseNpy(npy(header("<f8", "(2, 3, 2)", "True"), Float64Array.from({ length: 12 }, (_, i) => i)));
  assert.deepEqual(array.tolist(), [[[0, 6], [2, 8], [4, 10]], [[1, 7], [3, 9], [5, 11]]]);
});

test("a view into a larger buffer is read", () => {
  const file = npy(header("<f8", "(2,)"), Float64Array.of(1, 2));
  const larger = new Uint8Array(file.length + 8);
  larger.set(file, 3);
  assert.deepEqual(parseNpy(larger.subarray(3, 3 + file.length)).tolist(), [1, 2]);
});

test("scalars, empty arrays and texts have their shapes", () => {
  assert.equal(parseNpy(npy(header("<f8", "()"), Float64Array.of(7))).tolist(), 7);
  assert.deepEqual(parseNpy(npy(header("<f8", "(0, 3)"), new Float64Array(0))).shape, [0, 3]);
  const texts = Uint32Array.from([..."ab\0\u{1F600}\0\0"].map((letter) => letter.codePointAt(0) as number));
  assert.deepEqual(parseNpy(npy(header("<U3", "(2,)"), texts)).tolist(), ["ab", "\u{1F600}"]);
});

test("other bytes are refused", () => {
  const file = npy(header("<f8", "(2,)"), Float64Array.of(1, 2));
  assert.throws(() => parseNpy(new TextEncoder().encode("x,y\n1,2\n")), /no npy/);
  assert.throws(() => parseNpy(file.subarray(0, 40)), /shorter/);
  assert.throws(() => parseNpy(file.subarray(0, file.length - 1)), /shorter/);
  assert.throws(() => parseNpy(Uint8Array.from([...file, 0])), /longer/);
  assert.throws(() => parseNpy(npy(header(">f8", "(2,)"), Float64Array.of(1, 2))), /big-endian/);
  assert.throws(() => parseNpy(npy(header("<c16", "(1,)"), Float64Array.of(1, 2))), /c16/);
  assert.throws(() => parseNpy(npy("{'descr': [('a', '<f8')], 'shape': (1,)}", Float64Array.of(1))), /plain array/);
});

test("rows have one length, and parts share the data", () => {
  const array = NdArray.fromRows([[1, 2], Float32Array.of(3, 4)]);
  assert.deepEqual([...array].map((row) => row.tolist()), [[1, 2], [3, 4]]);
  assert.equal(array.get(1, 0), 3);
  assert.equal(array.at(-1).data.buffer, array.data.buffer);
  assert.throws(() => NdArray.fromRows([[1, 2], [3]]), /Row 1 has 1 values/);
  assert.throws(() => array.at(2), RangeError);
  assert.throws(() => array.get(1), /1 indices/);
  assert.throws(() => new NdArray(BigInt64Array.of(2n ** 60n), [1], "int64").tolist(), /beyond/);
});

/** a = [1.5, 2.5] and words = ["x", "yy"], in base64; the service writes 64-bit sizes and no sizes in front. */
const ARCHIVES: Record<string, string> = {
  "savez":
    "UEsDBC0AAAAAAAAAIQCU3hHI//////////8FABQAYS5ucHkBABAAkAAAAAAAAACQAAAAAAAAAJNOVU1QWQEAdgB7J2Rlc2NyJzogJzxmOCcsICdmb3J0cmFuX29yZGVyJzogRmFsc2UsICdzaGFwZSc6ICgyLCksIH0gICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAKAAAAAAAA+D8AAAAAAAAEQFBLAwQtAAAAAAAAACEAtu1Es///////////CQAUAHdvcmRzLm5weQEAEACQAAAAAAAAAJAAAAAAAAAAk05VTVBZAQB2AHsnZGVzY3InOiAnPFUyJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsKSwgfSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAp4AAAAAAAAAHkAAAB5AAAAUEsBAi0DLQAAAAAAAAAhAJTeEciQAAAAkAAAAAUAAAAAAAAAAAAAAIABAAAAAGEubnB5UEsBAi0DLQAAAAAAAAAhALbtRLOQAAAAkAAAAAkAAAAAAAAAAAAAAIABxwAAAHdvcmRzLm5weVBLBQYAAAAAAgACAGoAAACSAQAAAAA=",
  "savez_compressed":
    "UEsDBC0AAAAIAAAAIQCU3hHI//////////8FABQAYS5ucHkBABAAkAAAAAAAAABMAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loG6TZqGuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6mjoKtQoUAC4GMPhhD6FZHABQSwMELQAAAAgAAAAhALbtRLP//////////wkAFAB3b3Jkcy5ucHkBABAAkAAAAAAAAABKAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loG4TaqSuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6mjoKtQoUAK4KBgiohGIAUEsBAi0DLQAAAAgAAAAhAJTeEchMAAAAkAAAAAUAAAAAAAAAAAAAAIABAAAAAGEubnB5UEsBAi0DLQAAAAgAAAAhALbtRLNKAAAAkAAAAAkAAAAAAAAAAAAAAIABgwAAAHdvcmRzLm5weVBLBQYAAAAAAgACAGoAAAAIAQAAAAA=",
  "the service":
    "UEsDBC0ACAAAAAAAIQAAAAAA//////////8FABQAYS5ucHkBABAAAAAAAAAAAAAAAAAAAAAAAJNOVU1QWQEAdgB7J2Rlc2NyJzogJzxmOCcsICdmb3J0cmFuX29yZGVyJzogRmFsc2UsICdzaGFwZSc6ICgyLCksIH0gICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAKAAAAAAAA+D8AAAAAAAAEQFBLBwiU3hHIkAAAAAAAAACQAAAAAAAAAFBLAwQtAAgAAAAAACEAAAAAAP//////////CQAUAHdvcmRzLm5weQEAEAAAAAAAAAAAAAAAAAAAAAAAk05VTVBZAQB2AHsnZGVzY3InOiAnPFUyJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsKSwgfSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAp4AAAAAAAAAHkAAAB5AAAAUEsHCLbtRLOQAAAAAAAAAJAAAAAAAAAAUEsBAi0DLQAIAAAAAAAhAJTeEciQAAAAkAAAAAUAAAAAAAAAAAAAAIABAAAAAGEubnB5UEsBAi0DLQAIAAAAAAAhALbtRLOQAAAAkAAAAAkAAAAAAAAAAAAAAIAB3wAAAHdvcmRzLm5weVBLBQYAAAAAAgACAGoAAADCAQAAAAA=",
};

for (const [name, archive] of Object.entries(ARCHIVES)) {
  test(`an npz of ${name} is read`, async () => {
    const arrays = await parseNpz(Buffer.from(archive, "base64"));
    assert.deepEqual(Object.keys(arrays), ["a", "words"]);
    assert.deepEqual([arrays["a"]?.tolist(), arrays["words"]?.tolist()], [[1.5, 2.5], ["x", "yy"]]);
  });
}

test("other archives are refused", async () => {
  await assert.rejects(parseNpz(new Uint8Array(10)), /no npz/);
});
