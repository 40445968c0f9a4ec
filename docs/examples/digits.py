"""Handwritten digits: which islands of this UMAP are real? A notebook of percent cells."""

# %% [markdown]
# # Handwritten digits: which islands of this UMAP are real?
#
# Open this file as a notebook (VS Code, or Jupyter with jupytext), or run it: `python docs/examples/digits.py`.

# %%
from sklearn.datasets import load_digits

import glle

X, y = load_digits(return_X_y=True)
X, y = X[:600], y[:600]

# %% [markdown]
# UMAP shows islands. Would another 600 digits show the same ones?

# %%
audit = glle.audit(X, method="umap", labels=y)
print(audit.level, audit.verdict)
axes = audit.plot()  # solid outlines: islands to trust

# %% [markdown]
# Which digits stay apart from which others in maps of other samples?

# %%
names, apart = audit.groups.names, audit.groups.apart
for i, name in enumerate(names):
    others = [f"{names[j]} ({apart[i, j]:.2f})" for j in range(len(names)) if j != i and apart[i, j] < 0.9]
    print(f"{name} is not apart from:", ", ".join(others) or "none")

# %% [markdown]
# The points to doubt first: their neighbors in other samples are far away in this map.

# %%
print(audit.frame().sort_values("stretch", ascending=False).head())
