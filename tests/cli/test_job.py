"""One training from the command line: whole or not at all, a way out by Ctrl-C and a way back by --resume."""

import shlex

import pytest

from esad.detectors.base import Detector
from esad.detectors.model_file import load


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


def test_an_existing_model_is_replaced_only_after_success(esad, parts, kit, tmp_path):
    out = tmp_path / "m.esad"
    out.write_bytes(b"the old model")
    failed = esad("fit", parts, "-l", "verdict", "-o", out, "--set", "lr=1e30", "--set", "clip=null", *kit.tiny)
    assert failed.code == 1
    assert failed.err.startswith("error: Training diverged")
    assert out.read_bytes() == b"the old model"
    assert esad("fit", parts, "-l", "verdict", "-o", out, *kit.tiny).code == 0
    assert load(out).n_features_in_ == 4


def test_a_leftover_checkpoint_is_mentioned(esad, parts, kit, tmp_path):
    (tmp_path / "m.esad.checkpoint").write_bytes(b"something")
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", *kit.tiny)
    assert done.code == 0
    assert "--resume" in done.err
    assert not (tmp_path / "m.esad.checkpoint").exists()


def test_resume_without_a_checkpoint_starts_from_the_beginning(esad, parts, kit, tmp_path):
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", "--resume", *kit.tiny)
    assert done.code == 0
    assert done.err.startswith("note: there is no checkpoint")


def test_a_checkpoint_of_other_data_is_refused(esad, parts, kit, tmp_path):
    other = kit.csv(tmp_path / "other.csv", kit.header, kit.rows(seed=1))
    out = tmp_path / "m.esad"
    _checkpoint(esad, other, kit, out)
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", out, "--resume", *kit.tiny)
    assert done.code == 2
    assert "belongs to other data" in done.err
    assert not out.exists()


def _checkpoint(esad, data, kit, out):
    """Stop a training right after its first checkpoint."""
    from esad.persist.checkpoint import Checkpoint

    write = Checkpoint.write

    def write_and_stop(self, state):
        write(self, state)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "write", write_and_stop)
        stopped = esad("fit", data, "-l", "verdict", "-i", "serial", "-o", out, "--checkpoint-every", 0, *kit.tiny)
    assert stopped.code == 130
    assert out.with_name("m.esad.checkpoint").exists()
    return stopped


def test_ctrl_c_says_how_to_go_on_and_resume_gives_the_same_bytes(esad, parts, kit, tmp_path):
    whole, out = tmp_path / "whole.esad", tmp_path / "m.esad"
    esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", whole, *kit.tiny)
    stopped = _checkpoint(esad, parts, kit, out)
    assert stopped.err.startswith("interrupted: no model was written. Go on with: esad fit ")
    assert stopped.err.count("\n") == 1
    command = shlex.split(stopped.err.partition("Go on with: esad ")[2])
    resumed = esad(*command, "--json")
    assert resumed.code == 0
    assert resumed.json["resumed_step"] == 1
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.esad", "parts.csv", "whole.esad"]


def test_an_interruption_before_the_model_is_saved_leaves_none(esad, parts, kit, tmp_path, monkeypatch):
    monkeypatch.setattr("esad.detectors.training.TrainingData.summarize", interrupt)
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", *kit.tiny)
    assert (done.code, done.err) == (130, "interrupted: no model was written.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["parts.csv"]


@pytest.mark.parametrize("where", ["after the save", "within the save"])
def test_an_interruption_when_the_model_is_there_says_so(esad, parts, kit, tmp_path, monkeypatch, where):
    out = tmp_path / "m.esad"
    if where == "after the save":
        monkeypatch.setattr("esad.cli.fit._show_summary", interrupt)
    else:
        save = Detector.save
        monkeypatch.setattr(Detector, "save", lambda self, path, **how: (save(self, path, **how), interrupt()))
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", out, "--checkpoint-every", 0, *kit.tiny)
    assert (done.code, done.err) == (130, f"interrupted: '{out}' had been written.\n")
    assert load(out).n_features_in_ == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.esad", "parts.csv"]


def test_an_old_model_is_not_taken_for_a_new_one(esad, parts, kit, tmp_path, monkeypatch):
    out = tmp_path / "m.esad"
    assert esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", out, *kit.tiny).code == 0
    monkeypatch.setattr(Detector, "save", interrupt)
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", out, *kit.tiny)
    assert done.err == "interrupted: no model was written.\n"
