# %% [markdown]
# # Payments: from 3 labels to 30
#
# Four thousand card payments, about two in a hundred of them fraud, and nobody has the time to look at many. What do
# three labels bring, what do thirty, and which reasons stand beside an alarm?

# %% [markdown]
# ## The table
#
# Numbers, a date, words, a truth value and gaps, as such tables have them. There are two kinds of fraud: stolen numbers
# tried out with small amounts, and gift cards or electronics bought with a new card. One payment in a hundred is a long
# journey: large, far away and honest. Without labels it looks worse than fraud.

# %%
import numpy as np
import pandas as pd

COUNTRIES = {"DE": 0.60, "FR": 0.20, "NL": 0.14, "US": 0.05, "BR": 0.01}
SHOPS = {"groceries": 0.45, "fuel": 0.2, "clothes": 0.15, "travel": 0.1, "electronics": 0.07, "gift cards": 0.03}


def payments(start, n_rows, seed):
    """Payments of four weeks, and which of them are fraud."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "time": pd.Timestamp(start) + pd.to_timedelta(np.sort(rng.integers(0, 40_320, n_rows)), unit="min"),
            "amount": rng.lognormal(3.3, 1.0, n_rows),
            "country": rng.choice(list(COUNTRIES), n_rows, p=list(COUNTRIES.values())),
            "shop": rng.choice(list(SHOPS), n_rows, p=list(SHOPS.values())),
            "card_present": rng.random(n_rows) < 0.7,
            "card_age_days": rng.exponential(700, n_rows).round(),
            "tries_last_hour": rng.poisson(0.3, n_rows),
        }
    )
    table.loc[rng.random(n_rows) < 0.05, "card_age_days"] = np.nan
    journey = rng.random(n_rows) < 0.01
    table.loc[journey, ["shop", "country"]] = ["travel", "BR"]
    table.loc[journey, "amount"] *= 30

    kind = rng.choice(["honest", "tried out", "bought"], n_rows, p=[0.98, 0.013, 0.007])
    tried, bought = kind == "tried out", kind == "bought"
    table.loc[kind != "honest", "card_present"] = False
    table.loc[tried, "amount"] = rng.uniform(1, 9, tried.sum())
    table.loc[tried, "tries_last_hour"] = rng.poisson(2, tried.sum()) + 1
    table.loc[bought, "shop"] = rng.choice(["gift cards", "electronics"], bought.sum())
    table.loc[bought, "amount"] = rng.lognormal(4.8, 0.5, bought.sum())
    table.loc[bought, "card_age_days"] = rng.exponential(60, bought.sum()).round()
    return table.round({"amount": 2}), kind != "honest"


X, is_fraud = payments("2026-01-05", 4000, seed=0)
X_new, is_fraud_new = payments("2026-02-02", 4000, seed=1)  # the weeks after: only to measure with
print(X.head(4).to_string())
print(f"\n{is_fraud.sum()} of {len(X)} payments are fraud, and {is_fraud_new.sum()} of the {len(X_new)} new ones")

# %% [markdown]
# ## More labels, a better list
#
# A label is -1 for a known fraud and 0 for a payment that nobody looked at. Nothing is scaled, encoded or filled in.
# `Committee` is what `esad fit` takes for such tables: [ESAD](../method.md) and trees that judge together. Isolation
# Forest, which cannot use labels, stands beside it.

# %%
from esad import Committee, IsolationForest, evaluate

known = np.random.default_rng(5).permutation(np.flatnonzero(is_fraud))
detectors, found = {}, {}
for n_labels in (0, 3, 10, 30):
    y = np.zeros(len(X), dtype=int)
    y[known[:n_labels]] = -1
    detectors[n_labels] = Committee(random_state=0).fit(X, y)
    found[n_labels] = evaluate(detectors[n_labels].anomaly_score(X_new), is_fraud_new, intervals=False)

forest = IsolationForest(random_state=0).fit(X)
found["forest"] = evaluate(forest.anomaly_score(X_new), is_fraud_new, intervals=False)
print("labels  average precision   AUC   fraud among the first 50")
for name, one in found.items():
    print(f"{name:>6}  {one.average_precision:17.2f}  {one.auc:.2f}  {50 * one.precision_at[50]:.0f}")

# %% [markdown]
# Without a label the first fifty are mostly journeys. Three labels are enough to say what is looked for: most of the
# first fifty are fraud. Thirty labels find the frauds further down the list too.

# %% alt="Precision over recall with 3 and with 30 labels"
import matplotlib.pyplot as plt

from esad import plot

axes = plt.figure(figsize=(6, 4)).gca()
for n_labels in (3, 30):
    scores = detectors[n_labels].anomaly_score(X_new)
    plot.PrecisionRecallDisplay.from_predictions(scores, is_fraud_new, name=f"{n_labels} labels", ax=axes)
plt.show()

# %% [markdown]
# ## Alarms
#
# The threshold was set in training by labelled frauds that the model had not seen, and says what to expect of it. The
# new payments are the judge.

# %%
detector = detectors[30]
alarms = detector.predict(X_new) == -1
print(f"promised: {detector.forecast_}")
print(
    f"came:     {(alarms & ~is_fraud_new).sum() / (~is_fraud_new).sum():.1%} of honest payments are false alarms;",
    end=" ",
)
print(f"{(alarms & is_fraud_new).sum() / is_fraud_new.sum():.0%} of the fraud is found")

# %% alt="Histogram of the scores of honest payments and of fraud, with the threshold"
plot.ScoreDistributionDisplay.from_estimator(detector, X_new, is_fraud_new, ax=plt.figure(figsize=(6, 3.4)).gca())
plt.show()

# %% [markdown]
# ## Reasons
#
# Which columns make an alarm, what stood there, and what would have been usual:

# %%
worst = X_new.iloc[np.argsort(-detector.anomaly_score(X_new))[:3]]
reasons = detector.explain(worst)
lines = reasons.to_frame(worst.index, id_name="payment", top=3).to_pandas()
print(lines[["payment", "score", "column", "observed", "expected"]].round(2).to_string(index=False))

# %% alt="What each column adds to the score of the worst payment"
reasons.plot(0, ax=plt.figure(figsize=(6, 3.4)).gca())
plt.show()

# %% [markdown]
# ## What next
#
# `detector.save("payments.esad")` keeps it all in one file; `esad review payments.csv` is the same loop in a web page,
# where you judge rows by keyboard ([review](../review.md)), and [labels worth asking for](../next-labels.md) says which
# rows to look at first.
