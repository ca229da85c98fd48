"""Every command and option is explained, with an example, in the terminal and in docs/cli.md."""

import importlib.util
import shlex
from pathlib import Path

import pytest

from esad.cli.app import run

TOOL = Path(__file__).resolve().parents[2] / "tools" / "cli_docs.py"
_spec = importlib.util.spec_from_file_location("cli_docs", TOOL)
cli_docs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cli_docs)

COMMANDS = dict(cli_docs.commands())


PAGE = cli_docs.PAGES[0].read_text(encoding="utf-8")


def test_the_page_is_what_the_help_texts_say():
    assert cli_docs.render() == PAGE, "Run: python tools/cli_docs.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_on_the_page(name):
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert COMMANDS[name].help.splitlines()[0] in section
    for parameter in COMMANDS[name].params:
        assert parameter.help, parameter.name
        names = [*parameter.opts, *parameter.secondary_opts]
        assert all(f"`{name}" in section for name in names if name.startswith("-"))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example_that_parses(name, capfd):
    assert run([*name.split()[1:], "--help"]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    for line in COMMANDS[name].epilog.splitlines()[1:]:
        command = line.strip()
        if not command:
            continue
        assert command in shown
        words = shlex.split(command)
        target = max((known for known in COMMANDS if command.startswith(known)), key=len)
        COMMANDS[target].make_context(target, words[len(target.split()) :], resilient_parsing=False).close()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("esad", "esad bench")])
def test_every_command_offers_json(name):
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)
