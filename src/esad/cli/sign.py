"""`esad sign` and `esad trust`: who made a model file, and whose are served."""

from pathlib import Path
from typing import Annotated

import typer

from esad.cli import options, output
from esad.cli.options import command, option
from esad.errors import InputError


@command(
    "esad sign payments.esad --new-key --name ann",
    "esad sign payments.esad",
    "esad sign payments.esad --key /secrets/release.pem",
)
def sign(
    model: options.Model,
    key: Path | None = option(None, "--key FILE", "The private key; by default yours, in ~/.config/esad."),
    new_key: bool = option(False, "--new-key", "Make the key first; one that is there stays."),
    name: str = option("", "--name NAME", "Whose key it is, for the line that others trust."),
    as_json: options.Json = False,
) -> None:
    """Sign a model file: a small file beside it says who made it, and that nobody changed it since."""
    from esad.detectors.model_file import describe
    from esad.persist import signature

    describe(model)  # what is no sound model is not signed
    if new_key:
        signature.new_key(key)
    line = signature.public_line(key, name)
    path = signature.sign(model, key)
    if as_json:
        output.print_json({"signature": str(path), "public_key": line})
        return
    output.say(f"Wrote {path}")
    output.say("Who shall trust your models runs:")
    output.say(f"esad trust '{line}'" if name else f"esad trust '{line}' --name YOU")


@command(
    "esad trust",
    "esad trust 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI... ann'",
    "esad trust ann.pub",
    "esad trust --remove ann",
)
def trust(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A line that begins with ssh-ed25519, or a file that holds one.")
    ] = None,
    name: str | None = option(None, "--name NAME", "What to call the key; by default what its line says."),
    remove: str | None = option(None, "--remove NAME", "Trust the key of that name no longer."),
    as_json: options.Json = False,
) -> None:
    """Trust models that somebody signed; without a key, show who is trusted."""
    from esad.persist import signature

    if remove is not None and key is not None:
        raise InputError("Either a key to trust or --remove, not both.")
    if remove is not None:
        signature.distrust(remove)
    if key is not None:
        signature.trust(key if key.startswith("ssh-") else signature.read_line(Path(key)), name)
    known = signature.trusted_keys()
    if as_json:
        output.print_json({"keys": [{"name": one.name, "fingerprint": one.fingerprint} for one in known]})
    elif known:
        output.show_pairs([(one.name, one.fingerprint) for one in known])
    else:
        output.say("Nobody is trusted. esad sign prints the line that others give to esad trust.")
