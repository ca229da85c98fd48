"""`esad compare`: which method suits my own data."""

from typing import TYPE_CHECKING

from esad import registry
from esad.cli import options, output
from esad.cli.options import command, option
from esad.errors import InputError, LabelError

if TYPE_CHECKING:
    from esad.advice.compare import Comparison


@command(
    "esad compare payments.csv --label-column label",
    "esad compare parts.csv -l bad --anomaly-value 1 --methods esad,iforest --repeats 10",
)
def compare(
    data: options.Data,
    columns: options.ColumnOptions,
    methods: str | None = option(None, "--methods -m A,B", "Methods, parted by commas; all that fit by default."),
    repeats: int = option(5, "--repeats -r N", "How many random splits.", min=1),
    test_size: float = option(0.3, "--test-size SHARE", "Share of each kind of label that is held out."),
    budget: str = option(
        "2m",
        "--budget TIME",
        "Stop after this long, such as 90s, 25m or 2h. Quick methods come first; what was left out is said.",
    ),
    seed: options.Seed = 0,
    *,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Compare the methods on your own data by repeated splits.

    Held-out labelled anomalies are ranked against all other held-out rows; two labelled anomalies are needed at least.
    """
    from esad.advice.compare import compare as measure
    from esad.detectors.training import TrainingData

    chosen, seconds = _parse_methods(methods), options.seconds_of(budget)
    training = TrainingData.from_file(data, **columns, **reading.to_arguments(), on_remark=output.remark)
    if training.y is None:
        raise LabelError("Comparing needs labels. Give --label-column, or sub-folders of pictures.")
    names = chosen or list(registry.methods_for(training.kind))
    with output.bar(bursts=True) as progress:
        task = progress.add_task("comparing", total=len(names) * repeats, before=0, limit=seconds)
        begun: list[str] = []

        def on_fit(name: str, number: int) -> None:
            progress.update(task, description=f"{name}, split {number + 1} of {repeats}", completed=len(begun))
            begun.append(name)

        found = measure(
            training.X,
            training.y,
            methods=names,
            n_repeats=repeats,
            test_size=test_size,
            random_state=seed,
            on_fit=on_fit,
            max_seconds=seconds,
        )
    if all(result.reason is not None for result in found.results):
        raise InputError(f"No method could be used. {found.results[0].method}: {found.results[0].reason}")
    output.answer(as_json, found.to_json(), lambda: _show(found))


def _parse_methods(methods: str | None) -> list[str]:
    """The methods that were named, each of them known; none for all that take the data."""
    if methods is None:
        return []
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not names:
        raise InputError(f"--methods must name one method at least. There are: {', '.join(registry.method_names())}.")
    for name in names:
        registry.method(name)
    return names


def _show(found: "Comparison") -> None:
    from esad.advice.compare import HEADS

    output.show_table(found.title, HEADS, found.lines, right=HEADS[1:])
    for line in found.left_out:
        output.say(line)
    if found.shortened:
        output.say("Quick methods came first. For the others: --budget 10m, or --methods with a few of them.")
    output.say("Mean and spread (±) over the splits. Unlabelled rows count as normal here, hidden anomalies too:")
    output.say("good for comparing methods, not for promising a hit rate.")
