# %% [markdown]
# # Sensor readings of a machine
#
# A reading may be ordinary by itself and odd after the one before: a thermometer that stands still, a shaft that begins
# to tremble. A detector of rows sees that once each row carries its past, which takes five lines.

# %% [markdown]
# ## The readings
#
# Load, heat, vibration and current every fifteen minutes. Three faults come again and again: a bearing trembles, the
# thermometer sticks, the cooling fails and heat creeps up.

# %%
import numpy as np
import pandas as pd


def readings(n_days, seed):
    """Readings of some days, and the first and last reading of every fault."""
    rng = np.random.default_rng(seed)
    n_rows = 96 * n_days
    time = pd.date_range("2026-03-02", periods=n_rows, freq="15min")
    load = 55 + 25 * np.sin(2 * np.pi * (time.hour - 9) / 24) + np.repeat(rng.normal(0, 6, n_rows // 4), 4)
    load += rng.normal(0, 2, n_rows)
    table = pd.DataFrame({"load": load}, index=time)
    table["heat"] = 30 + 0.5 * table["load"].ewm(halflife=8).mean() + rng.normal(0, 0.6, n_rows)
    table["vibration"] = 1 + load / 50 + rng.normal(0, 0.12, n_rows)
    table["current"] = 4 + 0.12 * load + rng.normal(0, 0.3, n_rows)
    faults = []
    for number, start in enumerate(range(150, n_rows - 150, 384)):
        first = start + rng.integers(-40, 40)
        length = rng.integers(28, 48)
        rows = slice(first, first + length)
        if number % 3 == 0:
            table.iloc[rows, 2] += rng.normal(0, 0.35, length)  # the bearing trembles
        elif number % 3 == 1:
            table.iloc[rows, 1] = table.iloc[first, 1]  # the thermometer sticks
        else:
            table.iloc[rows, 1] += np.linspace(0, 9, length)  # the cooling fails
        faults.append(rows)
    return table, faults


table, faults = readings(60, seed=0)
table_new, faults_new = readings(40, seed=1)
is_fault_new = np.zeros(len(table_new), dtype=bool)
for rows in faults_new:
    is_fault_new[rows] = True
print(table.head(3).round(2).to_string())
print(f"\n{len(table)} readings with {len(faults)} faults, {len(table_new)} new ones with {len(faults_new)}")

# %% [markdown]
# ## The past as columns
#
# The reading before, the change within an hour, mean and spread of two hours. Each looks back only, so that it can be
# had at the moment of the reading; the first eight rows have no past yet and are left out.


# %%
def with_past(table):
    """Readings beside lags and rolling values."""
    before = table.shift(1).add_suffix(" before")
    change = table.diff(4).add_suffix(" change in 1 h")
    mean = table.rolling(8).mean().add_suffix(" mean of 2 h")
    spread = table.rolling(8).std().add_suffix(" spread of 2 h")
    return pd.concat([table, before, change, mean, spread], axis=1).iloc[8:]


# %% [markdown]
# ## Six known faults
#
# Somebody remembers the first six faults, two of each kind. All their readings are labelled -1, all others 0.

# %%
from esad import ESAD, evaluate

y = np.zeros(len(table), dtype=int)
for rows in faults[:6]:
    y[rows] = -1
detectors, found = {}, {}
print("                             average    faults   false alarms")
print("columns    known faults    precision     found          a day")
for name, prepare in {"readings": lambda table: table.iloc[8:], "with past": with_past}.items():
    for n_known, known in {0: np.zeros_like(y), 6: y}.items():
        detector = ESAD(random_state=0).fit(prepare(table), known[8:])
        scores = detector.anomaly_score(prepare(table_new))
        alarms = np.r_[np.zeros(8, dtype=bool), scores > detector.threshold_]
        n_found = sum(alarms[rows].any() for rows in faults_new)
        precision = evaluate(scores, is_fault_new[8:], intervals=False).average_precision
        n_false = (alarms & ~is_fault_new).sum() / 40
        print(f"{name:10} {n_known:12} {precision:12.2f} {n_found:5} of {len(faults_new)} {n_false:14.1f}")
        detectors[name, n_known], found[name, n_known] = detector, precision

# %% [markdown]
# The past makes the faults visible, and six of them as examples say which of the many odd moments are meant. Neither
# does as much without the other. A false alarm is one reading here; most come next to each other.

# %% alt="Heat, vibration and score over two weeks; faults are shaded, the score is above the threshold there"
import matplotlib.pyplot as plt

detector = detectors["with past", 6]
shown = table_new.iloc[8 : 96 * 14]
scores = detector.anomaly_score(with_past(table_new))[: len(shown)]
figure, axes = plt.subplots(3, sharex=True, figsize=(7, 4), layout="constrained")
for ax, name in zip(axes, ["heat", "vibration"], strict=False):
    ax.plot(shown.index, shown[name], linewidth=0.7)
    ax.set_ylabel(name)
axes[2].plot(shown.index, scores, color="tab:orange", linewidth=0.7)
axes[2].axhline(detector.threshold_, color="black", linestyle="--", linewidth=0.8)
axes[2].set_ylabel("score")
for ax in axes:
    for rows in faults_new[:4]:
        ax.axvspan(table_new.index[rows.start], table_new.index[rows.stop], color="tab:red", alpha=0.15)
axes[2].tick_params(axis="x", rotation=20)
plt.show()

# %% [markdown]
# ## What the alarm says
#
# The last readings of the first three new faults, and the columns that weigh most:

# %%
last = with_past(table_new).loc[[table_new.index[rows.stop - 1] for rows in faults_new[:3]]]
reasons = detector.explain(last)
for row, kind in enumerate(["the bearing trembles", "the thermometer sticks", "the cooling fails"]):
    print(f"{kind:24} {', '.join(reasons.top(row, 3))}")

# %% alt="What each column adds to the score while the cooling fails"
reasons.plot(2, ax=plt.figure(figsize=(6, 3.6)).gca())
plt.show()

# %% [markdown]
# ## Mind the time
#
# - Train on the past and measure on what came later, as here; rows of one fault in both parts would flatter.
# - A clock, a counter or a date that only grows makes every new row odd: leave it out.
# - Machines age. `detector.drift(with_past(table_new))` tells when new readings no longer look like those of the
#   training ([drift](../drift.md)).
