// The main job in TypeScript: upload a table, fit, one draw, many draws. `make up` runs in another terminal.
import { openAsBlob } from "node:fs";
import { writeFile } from "node:fs/promises";

import { Client, writeNpy } from "glle";

const client = new Client(); // GLLE_URL, or http://127.0.0.1:8000

// 1. Upload: an array, rows, or a file. The same data is the same resource.
const file = await openAsBlob(process.argv[2] ?? "sheet.csv", { type: "text/csv" });
const sheet = await client.dataset(file);
console.log("data set  ", sheet.id);

// 2. Fit on a worker; an existing posterior returns at once.
const posterior = await client.fit(sheet, { n_neighbors: 10 });
console.log("posterior ", posterior.id);

// 3. One draw. Draw 7 of seed 0 is the same bits today, tomorrow, alone or in a batch.
await writeFile("draw.npy", writeNpy(await posterior.draw(7)));

// 4. Eight draws at each of three scales: shape (3, 8, n, 2).
await writeFile("draws.npy", writeNpy(await posterior.draws(8, { scales: [0.1, 1, 10] })));
console.log("draws      draw.npy draws.npy");
