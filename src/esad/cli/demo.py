"""`esad demo`: the whole way on data that ships with scikit-learn, in under a minute."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad import registry
from esad.cli import options, output
from esad.cli.options import command, option

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from esad.datasets.scenario import Scenario
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData

_COMPARED = ("committee", "esad", "deep_sad", "iforest")
_EXPLAINED = 5  # rows, in the report


def name_result_files(out: Path) -> dict[str, Path]:
    """Name the files that the demo writes into its folder."""
    names = ("train.csv", "test.csv", "model.esad", "scores.csv", "report.html")
    return {name.partition(".")[0]: out / name for name in names}


@command("esad demo", "esad demo --out /tmp/esad-demo", files=name_result_files)
def demo(
    out: Path = option(Path("esad-demo"), "--out -o DIR", "Folder for the files it writes."),
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Train on breast cancer data, compare four methods, leave a model, a report and files to go on with.

    The model is of the method that `esad fit` takes for such data. Malignant tumours are the anomalies: a few are
    labelled, a few more hide among the unlabelled rows. 40 % of the rows are kept apart for the test.
    """
    from esad.datasets.saving import write_table
    from esad.datasets.scenario import table
    from esad.detectors.training import TrainingData
    from esad.io.files import read_table
    from esad.io.scores import ScoreWriter

    files = _check_result_files(out)
    dataset = registry.load_data_set("breast_cancer")
    scenario = table(dataset, labelled_ratio=0.05, pollution_ratio=0.05, seed=seed)
    if not as_json:
        _introduce(scenario)
    write_table(files["train"], scenario.X_train, names=dataset.columns, y=scenario.y_train)
    write_table(files["test"], scenario.X_test, names=dataset.columns, truth=scenario.truth_test)
    training = TrainingData.from_file(files["train"], label_column="label")
    test = read_table(files["test"]).drop_columns(["truth"])
    kept, _ = registry.choose_method(training.kind, training.label_counts())
    names = dict.fromkeys((kept, *_COMPARED))
    trained = {name: _train(name, training, test, scenario.truth_test, seed) for name in names}
    model, scores, _ = trained[kept]
    model.save(files["model"], with_cases=True)
    with ScoreWriter(files["scores"]) as writer:
        writer.write(scores, scores > model.threshold_)
    _write_report(model, files)
    results = {name: result for name, (_, _, result) in trained.items()}
    document = {"method": kept, "results": results, "files": {name: str(path) for name, path in files.items()}}
    output.answer(as_json, document, lambda: _show(results, kept, files))


def _check_result_files(out: Path) -> dict[str, Path]:
    """Make the folder, check that every result file can be written, and return their paths."""
    from esad.core.atomic import check_writable
    from esad.datasets.folder import make_folder

    make_folder(out)
    files = name_result_files(out)
    for path in files.values():
        check_writable(path)
    return files


def _write_report(model: "Detector", files: dict[str, Path]) -> None:
    """Write the report of the test rows, as `esad report` would."""
    from esad.report.findings import collect_findings
    from esad.report.page import save_page

    found = collect_findings(
        model,
        files["test"],
        truth_column="truth",
        top=_EXPLAINED,
        model_name=files["model"].name,
        n_bytes=files["model"].stat().st_size,
        on_remark=output.remark,
    )
    save_page(found, files["report"])


def _introduce(scenario: "Scenario") -> None:
    n_labelled, n_test_anomaly = int((scenario.y_train < 0).sum()), int(scenario.truth_test.sum())
    n_train, n_test = len(scenario.y_train), len(scenario.truth_test)
    output.say("Breast cancer: 30 measures of the cell nuclei of each tumour; malignant = anomaly.")
    output.say(f"To learn from: {n_train} tumours, {n_labelled} labelled as malignant, the others unlabelled.")
    output.say(f"To test with:  {n_test} other tumours, {n_test_anomaly} of them malignant.")
    output.say()


def _train(
    name: str, training: "TrainingData", test: "pa.Table", truth: "NDArray[np.bool_]", seed: int
) -> "tuple[Detector, NDArray[np.float64], dict[str, Any]]":
    """Fit one method on the training rows and measure it on the test rows."""
    from esad.score.metrics import evaluate

    detector = registry.method(name)(random_state=seed)
    started = time.perf_counter()
    with output.bar() as progress:
        watch = output.TrainingBar(progress, f"training {name}")
        training.fit(detector, callbacks=[watch], on_remark=lambda found: None)  # the table says what is flagged
    seconds = time.perf_counter() - started
    scores = detector.anomaly_score(test)
    found = evaluate(scores, truth, threshold=detector.threshold_, ks=())
    return detector, scores, {"seconds": seconds, **found.to_json()}


def _show(results: dict[str, dict[str, Any]], kept: str, files: dict[str, Path]) -> None:
    rows = [
        (
            name,
            *(_format_interval(result, figure) for figure in ("auc", "average_precision")),
            f"{result['confusion']['true_alarms']} of {result['n_anomaly']}",
            result["confusion"]["false_alarms"],
            f"{result['seconds']:.1f}",
        )
        for name, result in results.items()
    ]
    heads = ["method", "AUC (95 %)", "average precision (95 %)", "found", "false alarms", "seconds"]
    output.show_table("On the test rows", heads, rows, right=heads[1:])
    output.say(f"The model is of the method {kept}, which esad fit takes for such data: over many tables the best of")
    output.say("these on average, though not on each.")
    output.say()
    for name, path in files.items():
        output.say(f"{name + ':':8}{path}")
    train, test, model = (str(files[name]) for name in ("train", "test", "model"))
    output.say()
    output.say("Go on with:")
    for arguments in (
        ["inspect", model],
        ["score", model, test, "--top", "10"],
        ["evaluate", model, test, "--truth-column", "truth"],
        ["explain", model, test, "--top", "3"],
        ["compare", train, "--label-column", "label"],
        ["fit", train, "--label-column", "label", "--out", str(files["model"].with_name("mine.esad"))],
    ):
        output.say(f"  {shlex.join(['esad', *arguments])}")


def _format_interval(result: dict[str, Any], name: str) -> str:
    low, high = result["intervals"][name]
    return f"{result[name]:.3f} ({low:.3f} to {high:.3f})"
