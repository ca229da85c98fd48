"""A service that takes signed model files only: at the start, and when a new file comes."""

import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from serving import KEY, ROWS, bearer, refused

pytest.importorskip("cryptography")

import esad
from esad.cli.app import run
from esad.errors import SignatureError
from esad.persist import signature
from esad.serve.keys import Keys
from esad.serve.metrics import Metrics
from esad.serve.model import ModelFile


@pytest.fixture
def signed(numbers, tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_CONFIG", str(tmp_path / "config"))
    path = tmp_path / "numbers.esad"
    shutil.copy(numbers, path)
    signature.new_key()
    signature.trust(signature.public_line(name="ann"))
    signature.sign(path)
    return path


def write_another(path):
    esad.IsolationForest(n_trees=5, random_state=1).fit(np.random.default_rng(1).normal(size=(100, 3))).save(path)


def test_a_new_file_waits_for_its_signature(asking, signed):
    ask = asking(signed, keys=Keys([KEY]), require_signature=True)
    before = ask("POST", "/score", json=ROWS, headers=bearer()).json()
    write_another(signed)
    assert "'ann' signed" in refused(ask("POST", "/reload", headers=bearer()), 422)
    assert ask("POST", "/score", json=ROWS, headers=bearer()).json() == before
    assert "changed since" in ask("GET", "/health").json()["problem"]
    assert str(signed.parent) not in ask("GET", "/health").json()["problem"]
    assert not ask.service.model_file.has_changed()
    signature.sign(signed)  # the model file itself stays as it is
    assert ask.service.model_file.has_changed()
    assert ask("POST", "/reload", headers=bearer()).json()["outcome"] == "replaced"
    scores = [row["score"] for row in ask("POST", "/score", json=ROWS, headers=bearer()).json()["rows"]]
    assert scores == esad.load(signed).anomaly_score(ROWS["rows"]).tolist()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: signature.signature_path(path).unlink(), "is not signed"),
        (lambda path: signature.distrust("ann"), "is not trusted"),
        (lambda path: signature.signature_path(path).write_text("{}"), "no signature of esad"),
        (lambda path: path.unlink(), "There is no model file"),
        (lambda path: (path.write_bytes(b"hello"), signature.sign(path)), "no esad model"),
    ],
)
def test_what_cannot_be_verified_leaves_the_model_as_it_was(asking, signed, harm, words):
    ask = asking(signed, keys=Keys([KEY]), require_signature=True)
    before = ask("POST", "/score", json=ROWS, headers=bearer()).json()
    harm(signed)
    assert refused(ask("POST", "/reload", headers=bearer()), 422)
    assert ask("POST", "/score", json=ROWS, headers=bearer()).json() == before
    if words != "no esad model":
        assert words in ask("GET", "/health").json()["problem"]


def test_a_key_that_is_trusted_no_longer_is_noticed_and_brings_no_model_back(asking, signed):
    ask = asking(signed, keys=Keys([KEY]), require_signature=True)
    signature.new_key(signed.parent / "bob.pem")
    signature.trust(signature.public_line(signed.parent / "bob.pem", name="bob"))
    write_another(signed)
    signature.sign(signed, signed.parent / "bob.pem")
    ask("POST", "/reload", headers=bearer())
    assert not ask.service.model_file.has_changed()
    signature.distrust("ann")
    assert ask.service.model_file.has_changed()
    assert "not trusted any more" in refused(ask("POST", "/rollback", headers=bearer()), 409)
    assert ask("POST", "/reload", headers=bearer()).json()["outcome"] == "unchanged"
    signature.trust(signature.public_line(name="ann"))
    assert ask("POST", "/rollback", headers=bearer()).status_code == 200


@pytest.fixture
def rolled_back(signed):
    """A service's model file after another one was signed by bob, read, and left again."""
    models = ModelFile(signed, Metrics(), require_signature=True)
    trust_new(signed.parent / "bob.pem")
    write_another(signed)
    signature.sign(signed, signed.parent / "bob.pem")
    assert models.reload(by_watch=True) == "replaced"
    models.roll_back()
    return models


def trust_new(path):
    signature.trust(signature.public_line(signature.new_key(path), name=path.stem))


def test_a_rollback_stands_when_another_key_is_trusted(rolled_back, signed):
    version, problem = rolled_back.current.version, rolled_back.problem
    signature.distrust("bob")
    assert rolled_back.reload(by_watch=True) == "failed"
    signature.trust(signature.public_line(signed.parent / "bob.pem", name="bob"))
    trust_new(signed.parent / "carol.pem")
    assert rolled_back.has_changed()
    assert rolled_back.reload(by_watch=True) == "unchanged"
    assert (rolled_back.current.version, rolled_back.problem) == (version, problem)
    assert rolled_back.reload() == "replaced"  # which was asked for
    assert rolled_back.problem is None


def test_a_rollback_ends_with_a_change_of_the_file_or_the_trust_in_its_key(rolled_back, signed):
    os.utime(signed)
    assert rolled_back.reload(by_watch=True) == "replaced"
    rolled_back.roll_back()
    signature.distrust("ann")
    assert rolled_back.reload(by_watch=True) == "replaced"


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00", b"rubbish\n"])
def test_trusted_keys_that_cannot_be_read_are_told_without_their_place(asking, signed, damage):
    ask = asking(signed, keys=Keys([KEY]), require_signature=True)
    write_another(signed)
    signature.sign(signed)
    ask("POST", "/reload", headers=bearer())
    signature.trusted_keys_path().write_bytes(damage)
    assert refused(ask("POST", "/rollback", headers=bearer()), 409) == "The trusted keys cannot be read."
    assert refused(ask("POST", "/reload", headers=bearer()), 422)
    problem = ask("GET", "/health").json()["problem"]
    assert "trusted_keys" in problem or "public key" in problem
    assert str(signed.parent) not in problem


def test_a_service_does_not_start_with_a_file_that_is_not_signed(asking, signed):
    signature.signature_path(signed).unlink()
    with pytest.raises(SignatureError, match="is not signed"):
        asking(signed, require_signature=True)
    assert asking(signed)("GET", "/health").status_code == 200


def test_signing_trusting_and_serving_as_commands(signed, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("ESAD_CONFIG", str(tmp_path / "other"))  # another user, who trusts nobody yet
    serve = ["serve", str(signed), "--port", "0", "--require-signature"]
    assert run(serve) == 2
    assert "is not trusted here" in capfd.readouterr().err
    monkeypatch.setenv("ESAD_CONFIG", str(tmp_path / "config"))
    assert run(["sign", str(signed), "--name", "ann"]) == 0
    line = re.search(r"esad trust '(.*)'", capfd.readouterr().out)[1]
    monkeypatch.setenv("ESAD_CONFIG", str(tmp_path / "other"))
    (tmp_path / "ann.pub").write_text(f"{line}\n")
    assert run(["trust", str(tmp_path / "ann.pub")]) == 0
    assert capfd.readouterr().out.split()[0] == "ann"
    command = [sys.executable, "-m", "esad", *serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert "Serving" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert run(["trust", "--remove", "ann", "--json"]) == 0
    assert '"keys": []' in capfd.readouterr().out


def test_commands_that_are_refused(signed, tmp_path, monkeypatch, capfd):
    assert run(["sign", str(signed), "--new-key"]) == 2
    assert "already" in capfd.readouterr().err
    assert run(["sign", str(signed), "--key", str(tmp_path / "none.pem")]) == 2
    assert "Make one with: esad sign MODEL --new-key" in capfd.readouterr().err
    signed.write_bytes(b"no model")
    assert run(["sign", str(signed)]) == 2
    assert run(["trust", "nonsense"]) == 2
    assert run(["trust", "nonsense", "--remove", "ann"]) == 2
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    assert run(["trust", "ssh-ed25519 AAAA ann"]) == 2
    assert "pip install '.[sign]'" in capfd.readouterr().err
