"""`esad inspect` and `esad methods`: what a model file holds, and which methods there are."""

from typing import Any

from esad import registry
from esad.cli import options, output
from esad.cli.options import command


@command("esad inspect payments.esad", "esad inspect payments.esad --json")
def inspect(model: options.Model, as_json: options.Json = False) -> None:
    """Show what a model is: method, parameters, columns, labels, threshold."""
    from esad.detectors.model_file import describe

    found = describe(model)
    output.answer(as_json, found, lambda: _show(found))


def _show(found: dict[str, Any]) -> None:
    labels, notes = found["labels"], found["notes"]
    rule = "" if found["threshold_rule"] is None else f" ({found['threshold_rule']})"
    changed = ", ".join(f"{name}={value!r}" for name, value in found["changed_parameters"].items())
    pairs = [
        ("model", f"{found['file']} ({output.size_text(found['n_bytes'])})"),
        ("method", f"{found['method']}, written by esad {found['esad_version']} (format {found['format_version']})"),
        *([("judges", found["why"])] if found["why"] else []),
        ("parameters", changed or "all at their defaults"),
        *((name, _join_settings(part)) for name, part in found["recipe"].items() if isinstance(part, dict)),
        ("weights", f"{found['n_weights']:,}" if found["n_weights"] else "none"),
        ("trained on", _describe_data(found)),
        (
            "labels",
            f"{labels['n_anomaly']:,} anomaly, {labels['n_normal']:,} normal, {labels['n_unlabelled']:,} unlabelled",
        ),
        ("threshold", f"{found['threshold']:.6g}{rule}: rows with a higher score are flagged"),
        ("expected", "not known" if found["forecast"] is None else found["forecast"]["text"]),
        ("calibration", found["calibration"] or "none, so there are no p-values"),
        *((name.replace("_", " "), _join_items(value)) for name, value in notes.items() if not _is_empty(value)),
        ("training rows", f"{found['data_fingerprint']} (fingerprint of rows and labels as they were learned from)"),
    ]
    output.show_pairs(pairs)
    if found["columns"]:
        _show_columns(found)


def _describe_data(found: dict[str, Any]) -> str:
    if found["shape"] is not None:
        channels, height, width = found["shape"]
        pictures = output.count_text(found["n_training_rows"], "picture")
        return f"{pictures}, {width} x {height} pixels, {output.count_text(channels, 'channel')}"
    return f"{output.count_text(found['n_training_rows'], 'row')}, {output.count_text(len(found['columns']), 'column')}"


def _show_columns(found: dict[str, Any]) -> None:
    n_rows = found["n_training_rows"]
    rows = [
        (column["name"], column["kind"], output.percent(column["n_missing"] / n_rows) if column["n_missing"] else "-")
        for column in found["columns"]
    ]
    output.say()
    output.show_table(None, ["column", "kind", "missing"], rows, right=["missing"], noun="column")


def _join_settings(part: dict[str, Any]) -> str:
    """Join names and values in one line, without empty values and with four digits per number.

    Examples
    --------
    >>> _join_settings({"noise": [1 / 3, 0.5], "clip": None, "n_steps": 250})
    'noise=[0.3333, 0.5], n_steps=250'
    """
    return ", ".join(f"{name}={_format_value(value)}" for name, value in part.items() if not _is_empty(value))


def _format_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def _join_items(value: Any) -> str:
    """Return a note as text, the items of a list separated by commas.

    Examples
    --------
    >>> _join_items(["", "reviewed.labels.db"])
    'reviewed.labels.db'
    """
    return ", ".join(str(item) for item in value if item != "") if isinstance(value, list) else str(value)


# ---------------------------------------------------------------------- methods


@command("esad methods", "esad methods --json")
def methods(as_json: options.Json = False) -> None:
    """List the methods: what data each takes and which labels it uses."""
    found = [registry.describe_method(name) for name in registry.method_names()]
    if as_json:
        output.print_json({"methods": found})
        return
    rows = [(one["name"], ", ".join(one["takes"]), _list_labels_used(one), one["summary"]) for one in found]
    output.show_table(None, ["method", "takes", "learns from", "what it is"], rows)
    output.say("* cannot do without")
    output.say("Use one with: esad fit DATA --method NAME ...")


def _list_labels_used(one: dict[str, Any]) -> str:
    """The kinds of rows it uses; a star at those that it needs."""
    return ", ".join(f"{kind}*" if kind in one["labels_needed"] else kind for kind in one["labels_used"])
