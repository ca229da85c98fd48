# %% [markdown]
# # A service in a container
#
# A model answers over HTTP: first a score, then the reason, then a better model without a restart. The same command
# runs on your machine and in the container.

# %% [markdown]
# ## A model
#
# Tumours, of which a few are known to be malignant; the table comes with scikit-learn.

# %%
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_breast_cancer

from esad import ESAD, registry
from esad.datasets import scenario

tumours = registry.load_data_set("breast_cancer")
part = scenario.table(tumours, labelled_ratio=0.05, pollution_ratio=0.05, seed=0)
X, y = pd.DataFrame(part.X_train, columns=load_breast_cancer().feature_names), part.y_train
Path("models").mkdir()
ESAD(n_members=1, n_epochs=5, random_state=0).fit(X, y).save("models/model.esad")  # a first try

# %% [markdown]
# ## The container
#
# The [Dockerfile](../../Dockerfile) installs esad with its web parts into a small image that does not run as root. With
# Docker or Podman:
#
# ```sh
# docker build -t esad .
# docker run -p 8000:8000 -v "$PWD/models:/models:ro" esad
# ```
#
# Its command is `esad serve /models/model.esad --host 0.0.0.0 --port 8000`. Here the same command runs as a process,
# on this machine alone:

# %%
import re
import socket
import subprocess
import sys
import time

import httpx

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
service = subprocess.Popen(
    [sys.executable, "-m", "esad", "serve", "models/model.esad", "--port", port],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
url = f"http://127.0.0.1:{port}"

# %% [markdown]
# ## Is it well?
#
# The container's health check asks `/health`. A load balancer would ask `/ready`.

# %%
for _ in range(600):
    try:
        health = httpx.get(f"{url}/health").json()
        break
    except httpx.TransportError:
        time.sleep(0.1)
print(health["status"], "takes a", health["takes"])
print(httpx.get(f"{url}/ready").status_code)

# %% [markdown]
# ## Scores and reasons

# %%
rows = part.X_test[[0, -1]].tolist()
answer = httpx.post(f"{url}/score", json={"rows": rows}).json()
for row, truth in zip(answer["rows"], part.truth_test[[0, -1]], strict=True):
    print(f"score {row['score']:7.2f}   alarm: {row['anomaly']!s:5}   malignant: {bool(truth)}")
reasons = httpx.post(f"{url}/explain?top=2", json={"rows": rows[:1]}).json()["rows"][0]
for column in reasons["columns"]:
    print(f"{column['column']}: {column['observed']:.4g}, expected {column['expected']:.4g}")

# %% [markdown]
# What cannot be read is refused in one line:

# %%
refused = httpx.post(f"{url}/score", json={"rows": [[1.0, 2.0]]})
print(refused.status_code, refused.json()["error"]["message"])

# %% [markdown]
# ## A better model
#
# The default recipe this time, written over the first file. Within seconds it serves; requests under way are answered
# by the model that they began with.

# %%
ESAD(random_state=0).fit(X, y).save("models/model.esad")
for _ in range(600):
    better = httpx.post(f"{url}/score", json={"rows": rows}).json()
    if better["model"]["version"] != answer["model"]["version"]:
        break
    time.sleep(0.1)
print("another model answers:", better["model"]["version"] != answer["model"]["version"])

# %% [markdown]
# ## How good, how fast
#
# All test rows as one request, held against the truth, and a hundred requests of one row each:

# %% alt="Precision and recall of the served scores"
import matplotlib.pyplot as plt
import numpy as np

from esad import evaluate, plot

served = httpx.post(f"{url}/score", json={"rows": part.X_test.tolist()}).json()
scores = np.array([row["score"] for row in served["rows"]])
found = evaluate(scores, part.truth_test, threshold=served["threshold"], intervals=False)
print(f"AUC {found.auc:.3f}; {served['n_flagged']} alarms, {found.confusion.true_alarms} of them malignant")
with httpx.Client() as client:
    started = time.perf_counter()
    for row in part.X_test[:100].tolist():
        client.post(f"{url}/score", json={"rows": [row]})
    print(f"{1000 * (time.perf_counter() - started) / 100:.0f} ms a request")
plot.PrecisionRecallDisplay.from_predictions(
    scores, part.truth_test, name="over HTTP", ax=plt.figure(figsize=(6, 3.4)).gca()
)
plt.show()

# %%
metrics = httpx.get(f"{url}/metrics").text
print(*re.findall(r"^esad_rows_total.*|^esad_model_stale .*", metrics, flags=re.MULTILINE), sep="\n")

# %% [markdown]
# ## Stopping
#
# SIGTERM, which `docker stop` sends: requests under way are answered, then it ends.

# %%
service.terminate()
print("exit code", service.wait(timeout=60))

# %% [markdown]
# Keys, rates, logs and signed models are on the page about [scores over HTTP](../serve.md).
