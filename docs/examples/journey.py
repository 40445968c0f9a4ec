"""The main job in Python: upload a table, fit, one draw, many draws. `make up` runs in another terminal."""

import sys

import numpy as np

import glle

client = glle.Client()  # GLLE_URL, or http://127.0.0.1:8000

# 1. Upload: an array, a pandas.DataFrame, or a file. The same data is the same resource.
sheet = client.dataset(sys.argv[1] if len(sys.argv) > 1 else "sheet.csv")
print("data set  ", sheet.id)

# 2. Fit on a worker; an existing posterior returns at once.
posterior = client.fit(sheet, n_neighbors=10)
print("posterior ", posterior.id)

# 3. One draw. Draw 7 of seed 0 is the same bits today, tomorrow, alone or in a batch.
np.save("draw.npy", posterior.draw(7))

# 4. Eight draws at each of three scales, streamed to a file: shape (3, 8, n, 2).
posterior.draws(8, scales=[0.1, 1, 10], out="draws.npy")
print("draws      draw.npy draws.npy")
