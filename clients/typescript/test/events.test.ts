import assert from "node:assert/strict";
import { test } from "node:test";

import { EventParser, type ServerEvent } from "../src/index.ts";

const STREAM = [
  "\uFEFFretry: 1500\n\n",
  ": still here\n\n",
  'id: 3\nevent: progress\ndata: {"done": 1}\n\n',
  "event: lines\r\ndata: a\r\ndata:  b\r\nunknown: x\r\n\r\n",
  "data\r\r",
  "id: 4\nevent: no data\n\n",
  "event: end\nid: 5\ndata: ü\n\n",
  "data: incomplete\n",
].join("");

const EVENTS: ServerEvent[] = [
  { id: "3", event: "progress", data: '{"done": 1}' },
  { id: "3", event: "lines", data: "a\n b" },
  { id: "3", event: "message", data: "" },
  { id: "5", event: "end", data: "ü" },
];

for (const size of [1, 2, 3, 7, 1000]) {
  test(`a stream in pieces of ${size} bytes has the same events`, () => {
    const bytes = new TextEncoder().encode(STREAM);
    const parser = new EventParser();
    const events: ServerEvent[] = [];
    for (let i = 0; i < bytes.length; i += size) events.push(...parser.feed(bytes.subarray(i, i + size)));
    assert.deepEqual(events, EVENTS);
    assert.deepEqual([parser.retry, parser.lastEventId], [1500, "5"]);
  });
}

test("a parser continues after an earlier event", () => {
  const parser = new EventParser("7");
  assert.deepEqual(parser.feed(new TextEncoder().encode("data: x\n\n")), [{ id: "7", event: "message", data: "x" }]);
});
