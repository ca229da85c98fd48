"""`esad methods`: which methods there are, what they take and which labels they use."""

from typing import Any

from esad import registry
from esad.cli import options, output
from esad.cli.options import command

__all__ = ["methods"]


@command("esad methods", "esad methods --json")
def methods(as_json: options.Json = False) -> None:
    """List the methods: what data each takes and which labels it uses."""
    found = [registry.describe_method(name) for name in registry.method_names()]
    if as_json:
        output.json_out({"methods": found})
        return
    rows = [(one["name"], ", ".join(one["takes"]), _list_labels_used(one), one["summary"]) for one in found]
    output.show_table(None, ["method", "takes", "learns from", "what it is"], rows)
    output.say("* cannot do without")
    output.say("Use one with: esad fit DATA --method NAME ...")


def _list_labels_used(one: dict[str, Any]) -> str:
    """The kinds of rows it uses; a star at those that it needs."""
    return ", ".join(f"{kind}*" if kind in one["labels_needed"] else kind for kind in one["labels_used"])
