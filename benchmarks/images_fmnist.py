"""Hold ESAD's default recipe against the bars on Fashion-MNIST pictures.

    ESAD_DATA=folder python benchmarks/images_fmnist.py [--rerun] [--normal 1 8] [--seeds 0 1 2]

Protocol: one class is normal, 2,000 of its training images are unlabelled, 5 % of the training set are labelled
anomalies of one other class (the next one unless --labelled names it), the full test set of 10,000 images is scored.
"""

from __future__ import annotations

import argparse

from runs import Store, run_missing, show_bars

from esad.datasets.scenario import images
from esad.datasets.sources import mnist

BARS = {1: 97.0, 8: 85.0}


def run(store: Store, normals: list[int], labelled: int | None, seeds: list[int], *, rerun: bool) -> None:
    """Fit and judge every missing (normal class, labelled class, seed)."""
    data = mnist.load("fashion_mnist")
    for normal in normals:
        other = (normal + 1) % 10 if labelled is None else labelled
        for seed in seeds:
            drawn = images(
                data, normal_class=normal, labelled_classes=(other,), n_normal=2000, labelled_ratio=0.05, seed=seed
            )
            name = f"normal {normal}, labelled {other}"
            run_missing(store, method="esad", table=name, seed=seed, drawn=drawn, rerun=rerun)


def main() -> None:
    """Read the options, run, print; exit code 0 when every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--normal", nargs="+", type=int, choices=range(10), default=list(BARS))
    parser.add_argument("--labelled", type=int, choices=range(10), help="class of the labelled anomalies")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rerun", action="store_true", help="run again though stored")
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    store = Store("images_fmnist")
    if not options.show:
        run(store, options.normal, options.labelled, options.seeds, rerun=options.rerun)
    bars = {f"normal {normal}, labelled {(normal + 1) % 10}": bar for normal, bar in BARS.items()}
    raise SystemExit(0 if show_bars(store, bars) else 1)


if __name__ == "__main__":
    main()
