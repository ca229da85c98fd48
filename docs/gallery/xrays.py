# %% [markdown]
# # Chest X-rays
#
# The paper's medical pictures are chest X-rays of the NIH. This example goes the whole way with pictures that are drawn
# here and stored in the form of `nih_part1.npz`: put the real file in their place, and it runs on real X-rays.

# %% [markdown]
# ## A file in the form of nih_part1
#
# 64 x 64 grey pixels, whether there is any of fourteen findings, which ones, and which pictures are for testing
# ([data sets](../data.md)). Drawn are ribs, heart and spine; a finding is a pale shadow in a lung.

# %%
import os

import numpy as np

FINDINGS = ["Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"]
FINDINGS += ["Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"]


def draw_chest(rng, has_shadow):
    """One X-ray of 64 x 64 pixels."""
    y, x = np.mgrid[-1:1:64j, -1:1:64j]
    size, place_y, place_x = rng.uniform(0.92, 1.08), *rng.normal(0, 0.04, 2)
    y, x = (y - place_y) / size, (x - place_x) / size
    lungs = sum(np.exp(-(((x - middle) / 0.27) ** 4) - ((y + 0.02) / 0.62) ** 4) for middle in (-0.38, 0.38))
    ribs = np.cos(2 * np.pi * (4.2 * y + 0.9 * x**2 + rng.uniform(-0.05, 0.05)))
    heart = np.exp(-(((x - 0.12) / 0.25) ** 4) - ((y - 0.3) / 0.3) ** 4)
    picture = 170 * np.exp(-((x / 0.95) ** 6) - (y / 1.15) ** 8) - lungs * (105 - 14 * ribs) + 55 * heart
    picture += 35 * np.exp(-((x / 0.07) ** 2))  # the spine
    if has_shadow:
        middle, height = rng.choice([-0.38, 0.38]) + rng.normal(0, 0.06), rng.uniform(-0.4, 0.4)
        width = rng.uniform(0.13, 0.22)
        shadow = np.exp(-(((x - middle) / width) ** 2) - ((y - height) / (1.2 * width)) ** 2)
        picture += rng.uniform(55, 85) * shadow
    picture = picture * rng.uniform(0.85, 1.1) + rng.normal(0, 6, picture.shape)
    return np.clip(picture, 0, 255).astype(np.uint8)


rng = np.random.default_rng(0)
anomaly = rng.random(600) < 0.3
findings = np.zeros((600, 14), dtype=np.uint8)
findings[np.flatnonzero(anomaly), rng.choice([3, 4, 5], anomaly.sum())] = 1  # infiltration, mass, nodule
np.savez(
    "nih_part1.npz",
    images=np.array([draw_chest(rng, bool(ill)) for ill in anomaly]),
    anomaly=anomaly.astype(np.uint8),
    labels14=findings,
    label_names=np.array([name.encode() for name in FINDINGS]),
    official_test=(np.arange(600) >= 400).astype(np.uint8),
)
os.environ["ESAD_DATA"] = os.getcwd()  # where data sets lie

# %% [markdown]
# ## The paper's scenario
#
# Normal pictures without labels, a few ill ones hidden among them, and a few known ones. As in the paper only
# infiltrations are known; masses and nodules are new to the model when it is tested.

# %%
from esad import registry
from esad.datasets import scenario

chests = registry.load_data_set("nih_part1")
part = scenario.given(chests, labelled_ratio=0.06, pollution_ratio=0.04, seed=0)
print(f"{len(part.X_train)} training pictures, {(part.y_train == -1).sum()} of them known to be ill")
print(f"{len(part.X_test)} test pictures, {part.truth_test.sum()} of them ill")

# %% alt="Five healthy chests above five with a shadow"
import matplotlib.pyplot as plt

figure, axes = plt.subplots(2, 5, figsize=(6, 2.5), layout="constrained")
drawn = [*part.X_test[part.truth_test == 0][:5], *part.X_test[part.truth_test == 1][:5]]
for ax, picture in zip(axes.flat, drawn, strict=True):
    ax.imshow(picture, cmap="gray", vmin=0, vmax=255)
    ax.axis("off")
plt.show()

# %% [markdown]
# ## With and without the known ones
#
# Half the size is a quarter of the work, and shadows are large: pictures are made 32 x 32, and twenty epochs show the
# difference. With a GPU leave both out.

# %%
from esad import ESAD, evaluate


def halved(pictures):
    """Every 2 x 2 pixels as their mean."""
    return pictures.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4)).astype(np.uint8)


detectors, found = {}, {}
for name, y in {"without": np.zeros_like(part.y_train), "with": part.y_train}.items():
    detectors[name] = ESAD(n_epochs=20, random_state=0).fit(halved(part.X_train), y)
    scores = detectors[name].anomaly_score(halved(part.X_test))
    found[name] = evaluate(scores, part.truth_test)
    low, high = found[name].intervals["auc"]
    print(f"{name:7} labels: AUC {found[name].auc:.2f} ({low:.2f} to {high:.2f})")

# %% [markdown]
# ## Where to look
#
# A doctor is not helped by a number. The heat map says where the score comes from:

# %% alt="Three chests with a shadow beside their heat maps"
worst = halved(part.X_test[np.argsort(-scores)[:3]])
heat = detectors["with"].explain(worst)
figure, axes = plt.subplots(2, 3, figsize=(6, 4), layout="constrained")
for number in range(3):
    axes[0, number].imshow(worst[number], cmap="gray", vmin=0, vmax=255)
    axes[0, number].axis("off")
    heat.plot(number, ax=axes[1, number])
plt.show()

# %% [markdown]
# ## Real X-rays
#
# Real findings are far harder than drawn shadows: [the paper's pictures](../results-pictures.md) has what was
# measured on `nih_part1`, and [chest X-rays](../data.md#chest-x-rays) says how to make the paper's own sets from
# NIH's files. No result of this page says anything about patients.
