"""Weights from a model file, held against the network that they are to fill."""

from torch import Tensor, nn

from esad.errors import ModelFileError

__all__ = ["check_weights"]


def check_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Refuse weights that a module cannot be filled with: other names, shapes or types, numbers that are none."""
    expected = module.state_dict()
    if expected.keys() != weights.keys():
        raise ModelFileError("its weights are not those of the network it describes")
    for name, value in weights.items():
        if value.shape != expected[name].shape:
            raise ModelFileError(f"its weights {name!r} have another shape than the network it describes")
        if value.is_floating_point() != expected[name].is_floating_point():
            raise ModelFileError(f"its weights {name!r} have the wrong type")
        if value.is_floating_point() and not value.isfinite().all():
            raise ModelFileError(f"its weights {name!r} are not all finite")
        if name.rpartition(".")[2].startswith(("variance", "running_var", "spread", "ratio")) and (value < 0).any():
            raise ModelFileError(f"its weights {name!r} must not be negative")
