"""Who made a model file: ed25519 signatures in a file beside it, held against the keys that a user trusts.

`model.esad.sig` is JSON: the SHA-256 of the model file, when it was signed, the fingerprint of the key, and the
signature of the first two. Keys that are trusted are lines as OpenSSH writes them, in `trusted_keys` of the user's
configuration folder; the private key is PEM, readable by its owner alone. Needs the extra `sign`.
"""

import base64
import binascii
import datetime as dt
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.core.atomic import hash_file, read_text, write_json, write_text
from esad.core.machine import require, user_folder
from esad.core.text import list_text
from esad.errors import InputError, OutputError, SignatureError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

VARIABLE = "ESAD_CONFIG"
_ED25519, _SERIALIZATION = "hazmat.primitives.asymmetric.ed25519", "hazmat.primitives.serialization"
_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,64}")


@dataclass(frozen=True)
class TrustedKey:
    """A public key and whose it is."""

    name: str
    line: str
    fingerprint: str


@dataclass(frozen=True)
class Signature:
    """A verified signature: who signed the model file, and when."""

    key: TrustedKey
    sha256: str
    signed_at: str


# ---------------------------------------------------------------------- keys


def config_folder() -> Path:
    """The folder that ESAD_CONFIG names; without one, `esad` in XDG_CONFIG_HOME or in ~/.config."""
    return user_folder(VARIABLE, "config", "keys")


def default_key_path() -> Path:
    """Return the path of this user's private key."""
    return config_folder() / "signing_key.pem"


def new_key(path: Path | None = None) -> Path:
    """Make a private key that only its owner can read; one that is there is never replaced.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = new_key(Path(folder.name) / "key.pem")
    >>> oct(path.stat().st_mode)[-3:], public_line(path, "ann")[:11]
    ('600', 'ssh-ed25519')
    >>> folder.cleanup()
    """
    ed25519, serialization = _import_module(_ED25519), _import_module(_SERIALIZATION)
    path = path or default_key_path()
    content = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except FileExistsError:
        raise OutputError(f"There is a key at {str(path)!r} already; what it signed needs it. Name another.") from None
    except OSError as error:
        raise OutputError(f"Cannot write the key {str(path)!r}: {error.strerror}.") from error
    return path


def public_line(path: Path | None = None, name: str = "") -> str:
    """The public half of a private key, as a line to give to those who shall trust it."""
    return _line(_private_key(path or default_key_path()).public_key(), name)


def trusted_keys_path() -> Path:
    """Return the path of the keys that this user trusts."""
    return config_folder() / "trusted_keys"


def trusted_keys() -> list[TrustedKey]:
    """The keys that this user trusts."""
    path = trusted_keys_path()
    text = read_text(path, "the trusted keys") if path.exists() else ""
    return [_parse_line(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def trust(line: str, name: str | None = None) -> TrustedKey:
    """Trust whoever has the private half of a public key.

    Parameters
    ----------
    line : str
        As `public_line` gives it: "ssh-ed25519 KEY NAME".
    name : str, optional
        What to call it; by default what the line says.

    Raises
    ------
    InputError
        It is no such line, has no name, or the name is another key's.
    """
    key, known = _parse_line(line, name), trusted_keys()
    if not _NAME.fullmatch(key.name):
        raise InputError("A trusted key needs a name of up to 64 letters, digits, or . _ @ + -. Give one with --name.")
    if any(other.name == key.name and other.fingerprint != key.fingerprint for other in known):
        raise InputError(f"Another key is trusted as {key.name!r} already. Give this one another name.")
    _write_trusted([*(other for other in known if other.fingerprint != key.fingerprint), key])
    return key


def read_line(path: Path) -> str:
    """A public key from a file that holds nothing else."""
    return read_text(path, "the public key").strip()


def distrust(name: str) -> None:
    """Trust a key no longer."""
    known = trusted_keys()
    if name not in [key.name for key in known]:
        names = list_text(sorted(key.name for key in known)) or "none"
        raise InputError(f"No trusted key has the name {name!r}. There are: {names}.")
    _write_trusted([key for key in known if key.name != name])


# ---------------------------------------------------------------------- signatures


def signature_path(path: Path) -> Path:
    """Return the path of a model file's signature."""
    return path.with_name(f"{path.name}.sig")


def sign(path: Path, key: Path | None = None) -> Path:
    """Sign a model file; the signature lies beside it.

    Parameters
    ----------
    path : pathlib.Path
        A model file, which is read and checked before it is signed.
    key : pathlib.Path, optional
        The private key; `default_key_path()` by default.

    Returns
    -------
    pathlib.Path
        The signature.
    """
    private = _private_key(key or default_key_path())
    digest = _digest(path)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    public = private.public_key()
    document = {
        "format": "esad signature 1",
        "key": _parse_line(_line(public)).fingerprint,
        "sha256": digest,
        "signed_at": now,
        "signature": base64.b64encode(private.sign(_statement(digest, now))).decode("ascii"),
    }
    write_json(signature_path(path), document)
    return signature_path(path)


def verify(path: Path, *, beside: Path | None = None) -> Signature:
    """Hold a model file against its signature and the trusted keys.

    Parameters
    ----------
    path : pathlib.Path
        The model file.
    beside : pathlib.Path, optional
        The file whose signature counts, where `path` is a copy of it.

    Raises
    ------
    SignatureError
        It is not signed, by no trusted key, or is another file than the one that was signed.
    """
    told, place = repr(str(beside or path)), signature_path(beside or path)
    if not place.exists():
        raise SignatureError(f"The model file {told} is not signed: there is no {place.name!r}. Use: esad sign")
    document = _read_document(place)
    known = {key.fingerprint: key for key in trusted_keys()}
    key = known.get(document["key"])
    if key is None:
        raise SignatureError(
            f"The model file {told} is signed with the key {document['key'][:60]}, which is not trusted here. If you "
            "know whose it is, ask for the line that `esad sign` prints, and give it to: esad trust"
        )
    try:
        sent = base64.b64decode(document["signature"], validate=True)
        _public_key(key.line).verify(sent, _statement(document["sha256"], document["signed_at"]))
    except (_import_module("exceptions").InvalidSignature, binascii.Error):
        raise SignatureError(
            f"The signature {place.name!r} is damaged or forged: {key.name!r} did not make it."
        ) from None
    if _digest(path) != document["sha256"]:
        raise SignatureError(
            f"The model file {told} is not the one that {key.name!r} signed: it was changed since, or the signature is "
            "another file's."
        )
    return Signature(key, document["sha256"], document["signed_at"])


def _statement(digest: str, signed_at: str) -> bytes:
    """Return the bytes to sign: the file's digest with a text that ties the signature to this purpose."""
    return f"esad signature 1\n{digest}\n{signed_at}\n".encode()


def _read_document(place: Path) -> dict[str, str]:
    text = read_text(place, "the signature")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    names = ("format", "key", "sha256", "signed_at", "signature")
    if not isinstance(document, dict) or not all(isinstance(document.get(name), str) for name in names):
        raise SignatureError(
            f"The signature {place.name!r} is damaged: it is no signature of esad. Sign the model again."
        )
    if document["format"] != "esad signature 1":
        raise SignatureError(f"The signature {place.name!r} is of another version ({document['format'][:40]!r}).")
    return document


def _digest(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"There is no model file {str(path)!r}.")
    try:
        return hash_file(path)
    except OSError as error:
        raise InputError(f"Cannot read the model file {str(path)!r}: {error.strerror}.") from error


# ---------------------------------------------------------------------- reading and writing keys


def _import_module(name: str) -> Any:
    return require(f"cryptography.{name}", extra="sign")


def _private_key(path: Path) -> "Ed25519PrivateKey":
    if not path.exists():
        raise InputError(f"There is no private key at {str(path)!r}. Make one with: esad sign MODEL --new-key")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise InputError(f"Others can read the private key {str(path)!r}. Make it yours alone: chmod 600 {path}")
    text = read_text(path, "the private key")
    try:
        key = _import_module(_SERIALIZATION).load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError):  # malformed, of an unknown kind, or with a passphrase
        key = None
    if not isinstance(key, _import_module(_ED25519).Ed25519PrivateKey):
        raise InputError(f"{str(path)!r} is no ed25519 private key in PEM form without a passphrase.")
    found: Ed25519PrivateKey = key
    return found


def _public_key(line: str) -> "Ed25519PublicKey":
    try:
        key = _import_module(_SERIALIZATION).load_ssh_public_key(" ".join(line.split()[:2]).encode())
    except (ValueError, TypeError, LookupError, _import_module("exceptions").UnsupportedAlgorithm):
        key = None
    if not isinstance(key, _import_module(_ED25519).Ed25519PublicKey):
        raise InputError(f"A public key is a line: ssh-ed25519 KEY NAME. Got {line[:40]!r}.")
    found: Ed25519PublicKey = key
    return found


def _line(key: "Ed25519PublicKey", name: str = "") -> str:
    serialization = _import_module(_SERIALIZATION)
    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode("ascii")
    return f"{text} {name}".rstrip()


def _parse_line(line: str, name: str | None = None) -> TrustedKey:
    """A key with its fingerprint as `ssh-keygen -l` shows it."""
    plain = _line(_public_key(line))
    digest = hashlib.sha256(base64.b64decode(plain.split()[1])).digest()
    name = " ".join(line.split()[2:]) if name is None else name
    return TrustedKey(name, f"{plain} {name}".rstrip(), f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}")


def _write_trusted(keys: list[TrustedKey]) -> None:
    path = trusted_keys_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    write_text(path, "".join(f"{key.line}\n" for key in keys))
