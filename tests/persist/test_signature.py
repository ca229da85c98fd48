"""Signatures of model files: whose key, which file, and what is said where something is wrong."""

import json
import os
import shutil
import stat

import numpy as np
import pytest

pytest.importorskip("cryptography")

import esad
from esad.errors import InputError, OutputError, SignatureError
from esad.persist import signature


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "model.esad"
    esad.IsolationForest(n_trees=5, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2))).save(path)
    return path


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture
def model(sound, tmp_path, config):
    """A model that is signed with a trusted key."""
    path = tmp_path / "model.esad"
    shutil.copy(sound, path)
    signature.new_key()
    signature.trust(signature.public_line(name="ann"))
    signature.sign(path)
    return path


def refused(path):
    with pytest.raises(SignatureError) as caught:
        signature.verify(path)
    return str(caught.value)


def test_a_signed_file_tells_who_signed_it(model, tmp_path):
    found = signature.verify(model)
    assert found.key.name == "ann"
    assert found.key.fingerprint.startswith("SHA256:")
    moved = tmp_path / "moved.esad"  # the name is not signed
    model.rename(moved)
    signature.signature_path(model).rename(signature.signature_path(moved))
    assert signature.verify(moved) == found


def test_a_file_without_a_signature(model):
    signature.signature_path(model).unlink()
    assert "is not signed: there is no 'model.esad.sig'" in refused(model)


def test_a_key_that_is_not_trusted(model):
    signature.distrust("ann")
    assert "is not trusted here" in refused(model)
    with pytest.raises(InputError, match="No trusted key has the name 'ann'"):
        signature.distrust("ann")


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_file_that_was_changed(model, place):
    content = bytearray(model.read_bytes())
    content[place] ^= 1
    model.write_bytes(content)
    assert "is not the one that 'ann' signed" in refused(model)


@pytest.mark.parametrize("field", ["sha256", "signed_at", "signature"])
def test_a_signature_that_was_changed(model, field):
    path = signature.signature_path(model)
    document = json.loads(path.read_text())
    last = document[field][0]
    document[field] = ("1" if last == "0" else "0") + document[field][1:]
    path.write_text(json.dumps(document))
    assert "damaged or forged" in refused(model)


def test_the_signature_of_another_key_under_a_trusted_name(model, tmp_path):
    """Whoever has another key cannot pass it off as one that is trusted."""
    path = signature.signature_path(model)
    trusted = json.loads(path.read_text())["key"]
    signature.sign(model, signature.new_key(tmp_path / "evil.pem"))
    assert "is not trusted here" in refused(model)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"key": trusted}))
    assert "damaged or forged" in refused(model)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe", b"[" * 60_000, b'{"format": 1}', b"x" * 2_000_000])
def test_what_is_no_signature(model, content):
    signature.signature_path(model).write_bytes(content)
    with pytest.raises(InputError) as caught:
        signature.verify(model)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_the_private_key_is_its_owners_alone(model):
    path = signature.default_key_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        signature.sign(model)


def test_a_key_is_never_replaced(model):
    before = signature.default_key_path().read_bytes()
    with pytest.raises(OutputError, match="already"):
        signature.new_key()
    assert signature.default_key_path().read_bytes() == before


def test_keys_of_other_kinds_are_refused(model, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "other.pem"
    path.touch(mode=0o600)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    for content in (private.private_bytes(*form), b"nothing"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="no ed25519 private key"):
            signature.sign(model, path)
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    for line in (private.public_key().public_bytes(*form).decode(), "ssh-ed25519 AAAA ann", "", "ssh-ed25519"):
        with pytest.raises(InputError, match="ssh-ed25519 KEY NAME"):
            signature.trust(line, "ann")


def test_names_are_for_one_key_each(model, tmp_path):
    other = signature.public_line(signature.new_key(tmp_path / "other.pem"), "ann")
    with pytest.raises(InputError, match="another name"):
        signature.trust(other)
    for name in ("", "two words", "x" * 65, "a\nssh-ed25519"):
        with pytest.raises(InputError, match="needs a name"):
            signature.trust(other, name)
    signature.trust(other, "bob")
    signature.trust(other, "bert")  # the same key under a new name
    assert [key.name for key in signature.trusted_keys()] == ["ann", "bert"]
