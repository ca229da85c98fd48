# %% [markdown]
# # Scoring a folder with Ray
#
# A model, a folder with many files, several workers. What happens when a file is damaged, when another day looks
# different, and when the run is started again?

# %% [markdown]
# ## A model and a folder
#
# One Parquet file a day. On the sixth day a scale was set wrongly; the seventh file was cut off while it was copied.

# %%
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from esad import ESAD


def parcels(n_rows, seed, scale=1.0):
    """Parcels with an id; one in a hundred weighs three times what its size says."""
    rng = np.random.default_rng(seed)
    litres = rng.lognormal(1.5, 0.5, n_rows)
    kilos = 0.4 * litres * rng.lognormal(0, 0.15, n_rows)
    is_odd = rng.random(n_rows) < 0.01
    kilos[is_odd] *= 3
    depot = rng.choice(["north", "south", "harbour"], n_rows)
    ids = [f"{seed}-{number}" for number in range(n_rows)]
    return pa.table({"id": ids, "litres": litres, "kilos": scale * kilos, "depot": depot}), is_odd


training, is_odd = parcels(3000, seed=99)
y = np.zeros(3000, dtype=int)
y[np.flatnonzero(is_odd)[:10]] = -1  # ten were weighed again
ESAD(random_state=0).fit(training.drop_columns("id"), y).save("parcels.esad")
for day in range(1, 9):
    Path("days").mkdir(exist_ok=True)
    pq.write_table(parcels(20_000, seed=day, scale=1.3 if day == 6 else 1.0)[0], f"days/day-{day}.parquet")
whole = Path("days/day-7.parquet").read_bytes()
Path("days/day-7.parquet").write_bytes(whole[:5000])
print(sorted(path.name for path in Path("days").iterdir()))

# %% [markdown]
# ## All of it, by two workers
#
# Without an address Ray is started on this machine for the time of the call; `address="head:6379"` is a cluster, whose
# machines see the model and the folders at the same paths. `engine="local"` does the same without Ray.

# %%
from esad.scale import score_shards

outcome = score_shards("parcels.esad", "days", "scores", id_column="id", engine="ray", n_jobs=2)
print(f"{outcome.n_rows} rows of {outcome.n_shards} files")
for name, reason in outcome.failures.items():
    print("set aside:", name, reason.partition(" (")[0].rpartition(":")[2])

# %% [markdown]
# The damaged file cost nothing but itself. Which days do not look like the training rows is in the summary:

# %%
import json

summary = json.loads(Path("scores/_esad/summary.json").read_text())
print("drifted columns by file:", summary["drifted"])

# %% [markdown]
# ## The same command goes on
#
# The seventh file comes again, whole. What is scored already is left alone.

# %%
Path("days/day-7.parquet").write_bytes(whole)
again = score_shards("parcels.esad", "days", "scores", id_column="id", engine="ray", n_jobs=2)
print(f"{again.n_there} files were there, {again.n_shards - again.n_there} scored now, failures: {again.failures}")

# %% [markdown]
# ## The folder is one table

# %% alt="Share of alarms by day; the sixth is far above the others"
import matplotlib.pyplot as plt

n_alarms = []
for day in range(1, 9):
    scores = pq.read_table(f"scores/day-{day}.parquet")
    n_alarms.append(sum(scores["anomaly"].to_pylist()))
print(pq.read_table("scores").num_rows, "scores with the columns", scores.column_names)
axes = plt.figure(figsize=(6, 2.8)).gca()
axes.bar(range(1, 9), [100 * count / 20_000 for count in n_alarms])
axes.set(xlabel="day", ylabel="alarms in %")
plt.show()

# %% [markdown]
# On the sixth day the parcels did not change, the scale did: drift is to be looked at before the alarms are. On the
# command line all of this is `esad score parcels.esad days --out scores --engine ray` ([scoring at
# scale](../scoring-at-scale.md)).
