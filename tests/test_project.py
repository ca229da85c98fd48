"""What is read beside the code: citation, workflow, templates, Dockerfile; none may tell of what is gone."""

import fnmatch
import http.server
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
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
    number = paper["url"].rpartition("/")[2]
    assert f"arXiv:{number}" in paper["journal"]
    assert f"*{paper['title']}*, arXiv:{number})" in (ROOT / "docs" / "method.md").read_text(encoding="utf-8")


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


def list_text(argument):
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
    compile(health_check()[2], "health check", "exec")


def health_check():
    (argument,) = [argument for name, argument in steps() if name == "HEALTHCHECK"]
    return list_text(argument.partition("CMD ")[2])


def test_the_health_check_asks_the_port_that_the_container_was_told():
    assert any(name == "ENV" and "ESAD_PORT=8000" in argument.split() for name, argument in steps())

    class Well(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 500)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Well) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        check = [sys.executable, *health_check()[1:]]
        told = os.environ | {"ESAD_PORT": str(server.server_port)}
        assert subprocess.run(check, env=told, timeout=60).returncode == 0
        server.shutdown()
    assert subprocess.run(check, env=told, capture_output=True, timeout=60).returncode


def test_the_container_takes_another_build_of_torch_and_none_by_default():
    arguments = {argument for name, argument in steps() if name == "ARG"}
    assert {"TORCH=", "PIP_EXTRA_INDEX_URL="} <= arguments
    (installed,) = [argument for name, argument in steps() if name == "RUN" and "pip install" in argument]
    assert ' ${TORCH:+"$TORCH"} ' in installed


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
        (command,) = [list_text(argument) for name, argument in steps() if name == "CMD"]
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


INSTRUCTIONS = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def test_the_dockerfile_has_no_careless_step():
    for name, argument in steps():
        assert name in INSTRUCTIONS
        if name == "FROM":
            image = argument.split()[0]
            assert re.search(r":\d", image), f"{image}: which version?"
        if name == "WORKDIR":
            assert argument.startswith("/")
        if name in ("ENTRYPOINT", "CMD"):
            assert argument.startswith("["), "without a shell, so that signals arrive"
        if name == "RUN":
            assert not re.search(r"\bsudo\b|\bcurl\b|\bwget\b", argument)
            assert "pip install" not in argument or "--no-cache-dir" in argument
            assert "apt-get install" not in argument or "--no-install-recommends" in argument


@pytest.mark.extra
def test_the_steps_of_the_container_run_as_a_script_to_a_service_that_is_well(tmp_path):
    """Paths lead into an empty folder, packages are borrowed from this environment, no user is added."""
    from esad import ESAD, registry

    def inside(text):
        return re.sub(r"(?<![\w.])/(opt|build|work|models)\b", rf"{tmp_path}/\1", text)

    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    folder = tmp_path
    for name, argument in steps():
        if name == "WORKDIR":
            folder = Path(inside(argument))
            folder.mkdir(exist_ok=True)
        elif name == "COPY" and not argument.startswith("--from"):
            *sources, target = argument.split()
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / source, folder / target)
        elif name == "RUN" and not argument.startswith("useradd "):
            subprocess.run(["sh", "-ec", inside(argument)], cwd=folder, env=environment, check=True, timeout=300)
            if " -m venv " in argument:
                (site,) = tmp_path.glob("opt/esad/lib/python*/site-packages")
                (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        elif name == "ENV":
            for setting in shlex.split(argument):
                variable, _, value = setting.partition("=")
                environment[variable] = inside(value.replace("$PATH", environment["PATH"]))

    (tmp_path / "models").mkdir()
    tumours = registry.load_data_set("breast_cancer")
    ESAD(n_members=1, n_epochs=1, random_state=0).fit(tumours.X).save(tmp_path / "models" / "model.esad")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    last = dict(steps())
    here = {"0.0.0.0": "127.0.0.1", "8000": port}
    command = [here.get(word, inside(word)) for word in list_text(last["ENTRYPOINT"]) + list_text(last["CMD"])]
    check, environment["ESAD_PORT"] = health_check(), port
    assert shutil.which("esad", path=environment["PATH"]).startswith(str(tmp_path))
    service = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        ends = time.monotonic() + 120
        while subprocess.run(check, cwd=folder, env=environment, capture_output=True).returncode:
            assert service.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.5)
    finally:
        service.terminate()
        assert service.wait(timeout=60) == 0
    assert subprocess.run(check, cwd=folder, env=environment, capture_output=True).returncode
