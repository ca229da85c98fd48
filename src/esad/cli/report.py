"""`esad report`: a model and a data set as one HTML file."""

from pathlib import Path

from esad.cli import options, output
from esad.cli.explain import read_cases
from esad.cli.options import command, option
from esad.core.atomic import check_out


@command(
    "esad report payments.esad checked.csv --truth-column truth --out report.html",
    "esad report payments.esad new.csv --cases payments.csv --out report.html",
    "esad report pictures.esad checked/ --out report.html",
)
def report(
    model: options.Model,
    data: options.Data,
    out: Path = option(..., "--out -o REPORT", "HTML file to write."),
    truth_column: options.TruthColumn = None,
    anomaly_value: options.AnomalyValue = None,
    kind_column: str | None = option(
        None,
        "--kind-column NAME",
        "Column with the kind of each anomaly; for pictures the sub-folders of anomaly/ say it.",
    ),
    seen_kind: list[str] | None = option(
        None, "--seen-kind KIND", "Kind that training had labels of; may be repeated. The others had none."
    ),
    top: int = option(10, "--top -n N", "Explain the N worst rows.", min=1),
    id_column: options.IdColumn = None,
    labels_csv: options.LabelsCsv = None,
    cases: options.CasesFile = None,
    label_column: options.LabelColumn = None,
    *,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Write one HTML file: scores, figures against the truth, the worst rows with reasons, calibration, training, data.

    The file needs no network and runs no script. --label-column is about --cases.
    """
    from esad.detectors.model_file import load
    from esad.report.findings import collect_findings
    from esad.report.page import save_page

    detector = load(model)
    check_out(out, [model, data], [".html", ".htm"], "a report")
    known = read_cases(cases, detector, label_column=label_column)
    with output.stages(rows=True) as on_progress:
        found = collect_findings(
            detector,
            data,
            truth_column=truth_column,
            anomaly_value=anomaly_value,
            kind_column=kind_column,
            seen_kinds=seen_kind,
            id_column=id_column,
            labels_csv=labels_csv,
            reading=reading,
            cases=known,
            top=top,
            model_name=model.name,
            n_bytes=model.stat().st_size,
            on_progress=on_progress,
            on_remark=output.remark,
        )
    save_page(found, out)

    def show() -> None:
        size = output.size_text(out.stat().st_size)
        flagged = output.count_text(int(found.flagged.sum()), "alarm")
        output.say(f"{output.count_text(len(found.scores), 'row')}, {flagged}. Report: {out} ({size})")

    output.answer(as_json, {"out": str(out)} | found.to_json(), show)
