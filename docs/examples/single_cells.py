"""Single cells: three cell types, one of them rare, and two batches. A notebook of percent cells."""

# %% [markdown]
# # Single cells: three cell types, one of them rare, and two batches
#
# The counts are simulated, so that you know the truth: gene programs of three types, a batch effect on every gene, and
# dropout. Put your own `adata.X` and `adata.obs` in their place.

# %%
import numpy as np
from numpy.typing import NDArray

import glle

rng = np.random.default_rng(0)
cells, genes = 500, 200
cell_type = rng.choice(3, cells, p=(0.6, 0.35, 0.05))
batch = rng.integers(0, 2, cells)
programs = rng.gamma(0.6, 2.0, size=(3, genes))
depth = rng.lognormal(0, 0.3, size=(cells, 1))
rate = depth * programs[cell_type] * np.exp(0.15 * batch[:, None] * rng.normal(size=genes))
counts = rng.poisson(rate) * (rng.random((cells, genes)) > 0.3)

# %% [markdown]
# The usual preparation: equal depth, and a logarithm. Principal components are a part of the method here, so that each
# sample of the audit has its own.

# %%
normalized = np.log1p(1000 * counts / counts.sum(axis=1, keepdims=True))
names = np.array(["T cell", "B cell", "rare"])[cell_type]


def embed(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the UMAP of 20 principal components."""
    return glle.embed(glle.embed(points, "pca", n_components=20).Y, "umap").Y


# %% [markdown]
# Is the rare type an island that another sample of cells would show, too?

# %%
audit = glle.audit(normalized, method=embed, labels=names)
print(audit.level, audit.verdict)
for name, row in zip(audit.groups.names, audit.groups.apart, strict=True):
    print(name, np.round(row, 2))
axes = audit.plot()

# %% [markdown]
# Does the map show batches? The neighborhood hit is the share of a cell's neighbors that are of its batch: .5 if the
# batches are mixed, 1 if they are apart. If they are apart, islands may be an effect of the measurement.

# %%
batches = glle.compare(normalized, {"map": audit.embedding}, labels=batch, scores=["neighborhood_hit"], audit=False)
print(batches)
