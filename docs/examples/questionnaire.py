"""A questionnaire: is there structure, and how sure is each position? A notebook of percent cells."""

# %% [markdown]
# # A questionnaire: is there structure, and how sure is each position?
#
# 400 people answer 12 questions from 1 to 5. Two traits decide nine of the answers; three questions have nothing to do
# with them. The table has missing answers and an id, as real ones have.

# %%
import numpy as np
import pandas as pd

import glle

rng = np.random.default_rng(0)
traits = rng.normal(size=(400, 2))
loadings = np.vstack([rng.normal(size=(9, 2)), np.zeros((3, 2))])
answers = np.clip(np.round(3 + traits @ loadings.T + 0.7 * rng.normal(size=(400, 12))), 1, 5)
frame = pd.DataFrame(answers, columns=[f"q{number}" for number in range(1, 13)])
frame.insert(0, "id", [f"P{number:03d}" for number in range(400)])
frame.loc[rng.choice(400, 20, replace=False), "q4"] = np.nan

# %% [markdown]
# Every guess is a note: which column is the id, and what happened to missing answers.

# %%
posterior = glle.fit(frame, missing="median", noise="tangent")
for note in posterior.notes:
    print(note.message)

# %% [markdown]
# How far does each person move from draw to draw? Faint people change their neighbors.

# %%
summary = posterior.summary(40)
axes = glle.plot(summary, labels=traits[:, 0])

# %% [markdown]
# An audit asks whether the map as a whole may be believed.

# %%
audit = glle.audit(frame, method="pca", missing="median")
print(audit.level, audit.verdict)

# %% [markdown]
# Shuffled answers keep each question's frequencies and lose all relations. The audit says so.

# %%
shuffled = frame.assign(**{name: rng.permutation(frame[name].to_numpy()) for name in frame.columns[1:]})
print(glle.audit(shuffled, method="pca", missing="median").verdict)
