"""What is read beside the code: citation, workflow, templates, Dockerfile; none may tell of what is gone."""

import fnmatch
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import esad
from esad.cli.app import run

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_citation_names_the_paper_and_this_version():
    found = read("CITATION.cff")
    assert found["version"] == esad.__version__ == PROJECT["version"]
    assert found["license"] == PROJECT["license"]
    paper = found["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Huang", "Ye", "Zhao", "Zhang", "Wang", "Tian"]
    assert paper["url"] == PROJECT["urls"]["Paper"]


def test_the_workflow_runs_what_a_change_must_pass_on_every_python_that_is_named():
    workflow = read(".github/workflows/ci.yml")
    versions = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [line.rpartition(":: ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert versions == named
    assert PROJECT["requires-python"] == f">={versions[0]}"
    commands = {step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step}
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    required = {line for line in script if line.startswith("make ")}
    assert {"make test", "make test-extra"} <= required <= commands
    targets = re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {target for line in targets for target in line.split()}
    assert {command.split()[1] for command in commands if command.startswith("make ")} <= named


def test_issue_forms_have_what_a_form_needs():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = read(path.relative_to(ROOT))
        assert {"name", "description", "body"} <= set(form)
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields) > 0


# ---------------------------------------------------------------------- the container


def steps():
    """Instructions of the Dockerfile with their arguments."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip() and not line.startswith("#")]


def listed(argument):
    return list(yaml.safe_load(argument))


def test_the_container_is_not_root_and_says_whether_it_is_well():
    found = steps()
    names = [name for name, _ in found]
    assert names[0] == "FROM"
    assert names.count("ENTRYPOINT") == names.count("CMD") == names.count("HEALTHCHECK") == 1
    users = [argument for name, argument in found if name == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    assert names.index("USER") > max(number for number, name in enumerate(names) if name in ("RUN", "COPY"))
    (check,) = [argument for name, argument in found if name == "HEALTHCHECK"]
    compile(listed(check.partition("CMD ")[2])[2], "health check", "exec")


def test_what_the_container_copies_is_there_and_not_left_out():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert ignored[0] == "*"
    for name, argument in steps():
        if name == "COPY" and not argument.startswith("--from"):
            for source in argument.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(fnmatch.fnmatch(source.removeprefix("./"), pattern) for pattern in kept), source


def test_the_container_is_smaller_than_all_extras_and_names_none_that_is_gone():
    (installed,) = [argument for name, argument in steps() if name == "RUN" and "pip install" in argument]
    (target,) = [word for word in shlex.split(installed) if word.startswith(".[")]
    assert {"web"} <= set(target[2:-1].split(",")) < set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("line", ["CMD", "comment"])
def test_the_commands_of_the_container_are_understood(line, capfd):
    if line == "CMD":
        (command,) = [listed(argument) for name, argument in steps() if name == "CMD"]
        commands = [command]
    else:
        text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        commands = [
            shlex.split(found) for found in re.findall(r"^#.*docker run .* esad (.*)$", text, flags=re.MULTILINE)
        ]
        assert {command[0] for command in commands} == {"serve", "review"}
    for command in commands:
        assert run(command) == 2
        assert "No such option" not in (error := capfd.readouterr().err)
        assert command[1] in error  # the file is not there; all else is right
