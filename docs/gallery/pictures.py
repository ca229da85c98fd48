# %% [markdown]
# # Pictures of parts with scratches
#
# A camera looks at rings on a belt. Nearly all are fine; a few have a scratch. Which ones, and where is it?

# %% [markdown]
# ## The pictures
#
# Rings of slightly different size and place, lit from one side, 32 x 32 grey pixels. Scratches are short bright lines
# of any direction.

# %%
import numpy as np


def rings(n_pictures, n_scratched, seed):
    """Pictures of rings, and which of them are scratched."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:32, :32]
    pictures, is_scratched = [], rng.permutation(n_pictures) < n_scratched
    for scratched in is_scratched:
        middle_y, middle_x = 16 + rng.uniform(-1.5, 1.5, 2)
        radius = np.hypot(y - middle_y, x - middle_x)
        metal = (radius < rng.uniform(11.5, 13)) & (radius > rng.uniform(4, 5))
        picture = np.where(metal, 150 + 2.1 * (x - 16) + 1.1 * (y - 16), 35.0)
        if scratched:
            place, turn = rng.uniform(0, 2 * np.pi), rng.uniform(0, np.pi)
            to_x, to_y = x - middle_x - 8.5 * np.cos(place), y - middle_y - 8.5 * np.sin(place)
            along, across = to_x * np.cos(turn) + to_y * np.sin(turn), to_y * np.cos(turn) - to_x * np.sin(turn)
            picture += 60 * (metal & (abs(along) < rng.uniform(4, 8)) & (abs(across) < 0.7))
        pictures.append(np.clip(picture + rng.normal(0, 8, (32, 32)), 0, 255).astype(np.uint8))
    return np.array(pictures), is_scratched


X, is_scratched = rings(400, 25, seed=0)
X_new, is_scratched_new = rings(300, 30, seed=1)
print(X.shape, X.dtype, f"{is_scratched.sum()} scratched")

# %% alt="Six good rings above six scratched ones"
import matplotlib.pyplot as plt

figure, axes = plt.subplots(2, 6, figsize=(6, 2.1), layout="constrained")
for ax, picture in zip(axes.flat, [*X[~is_scratched][:6], *X[is_scratched][:6]], strict=True):
    ax.imshow(picture, cmap="gray", vmin=0, vmax=255)
    ax.axis("off")
plt.show()

# %% [markdown]
# ## Without labels, and with fifteen
#
# Fifteen epochs keep this example quick; leave `n_epochs` out for real work, and it takes a minute on one core. The
# turned and noisy pictures that ESAD trains with are described in [the method](../method.md).

# %%
from esad import ESAD, evaluate

detectors, found = {}, {}
for n_labels in (0, 15):
    y = np.zeros(len(X), dtype=int)
    y[np.flatnonzero(is_scratched)[:n_labels]] = -1
    detectors[n_labels] = ESAD(n_epochs=15, random_state=0).fit(X, y)
    scores = detectors[n_labels].anomaly_score(X_new)
    found[n_labels] = evaluate(scores, is_scratched_new, ks=(30,), intervals=False)
    n_found = 30 * found[n_labels].precision_at[30]
    print(f"{n_labels:2} labels: AUC {found[n_labels].auc:.2f}, {n_found:.0f} of the 30 scratched among the first 30")

# %% alt="Scores of good and scratched rings with fifteen labels"
from esad import plot

plot.ScoreDistributionDisplay.from_estimator(
    detectors[15], X_new, is_scratched_new, ax=plt.figure(figsize=(6, 3)).gca()
)
plt.show()

# %% [markdown]
# ## Where is the scratch?
#
# The heat map shows which pixels make the score. The first three in the list:

# %% alt="Three scratched rings beside their heat maps"
worst = X_new[np.argsort(-detectors[15].anomaly_score(X_new))[:3]]
heat = detectors[15].explain(worst)
figure, axes = plt.subplots(2, 3, figsize=(6, 4), layout="constrained")
for number in range(3):
    axes[0, number].imshow(worst[number], cmap="gray", vmin=0, vmax=255)
    axes[0, number].axis("off")
    heat.plot(number, ax=axes[1, number])
plt.show()

# %% [markdown]
# ## Folders of files
#
# The same from photographs, without a line of Python: `esad fit photos --out rings.esad` with the known ones in
# `photos/anomaly`, then `esad score rings.esad new-photos --top 20` and `esad explain rings.esad one.jpg`
# ([pictures](../pictures.md)). What is thinner than a pixel of the picture that the network sees is lost: for fine
# scratches cut the photographs into pieces.
