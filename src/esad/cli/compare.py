"""`esad compare`: which method suits my own data."""

from typing import TYPE_CHECKING, Annotated

from esad import registry
from esad.cli import options, output
from esad.errors import InputError, LabelError

if TYPE_CHECKING:
    from esad.advice.compare import Comparison
    from esad.io.reading import Reading

__all__ = ["EXAMPLE", "compare"]

EXAMPLE = output.example(
    "esad compare payments.csv --label-column label",
    "esad compare parts.csv -l bad --anomaly-value 1 --methods esad,iforest --repeats 10",
)


@options.reads_files
def compare(
    data: options.Data,
    label_column: options.LabelColumn = None,
    id_column: options.IdColumn = None,
    ignore: options.Ignore = None,
    text: options.Text = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    unlabelled_value: options.UnlabelledValue = None,
    labels_csv: options.LabelsCsv = None,
    methods: Annotated[
        str | None,
        options.option("--methods -m", "A,B", "Methods, parted by commas; all that fit by default."),
    ] = None,
    repeats: Annotated[int, options.option("--repeats -r", "N", "How many random splits.", min=1)] = 5,
    test_size: Annotated[
        float, options.option("--test-size", "SHARE", "Share of each kind of label that is held out.")
    ] = 0.3,
    budget: Annotated[
        str,
        options.option(
            "--budget",
            "TIME",
            "Stop after this long, such as 90s, 25m or 2h. Quick methods come first; what was left out is said.",
        ),
    ] = "2m",
    seed: options.Seed = 0,
    *,
    reading: "Reading",
    as_json: options.Json = False,
) -> None:
    """Compare the methods on your own data by repeated splits.

    Held-out labelled anomalies are ranked against all other held-out rows; two labelled anomalies are needed at least.
    """
    from esad.advice.compare import compare as measure
    from esad.detectors.training import TrainingData

    asked, seconds = _names(methods), options.seconds_of(budget)
    training = TrainingData.from_file(
        data,
        label_column=label_column,
        id_column=id_column,
        ignore=ignore or (),
        text=text or (),
        anomaly_value=anomaly_value,
        normal_value=normal_value,
        unlabelled_value=unlabelled_value,
        labels_csv=labels_csv,
        **reading.said(),
        on_remark=output.remark,
    )
    if training.y is None:
        raise LabelError("Comparing needs labels. Give --label-column, or sub-folders of pictures.")
    names = asked or list(registry.methods_for(training.kind))
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
    if as_json:
        output.json_out(found.to_json())
    else:
        _show(found)


def _names(methods: str | None) -> list[str]:
    """The methods asked for, none of them unknown; none for all that take the data."""
    if methods is None:
        return []
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not names:
        raise InputError(f"--methods must name one method at least. There are: {', '.join(registry.method_names())}.")
    for name in names:
        output.check_method(name)
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
