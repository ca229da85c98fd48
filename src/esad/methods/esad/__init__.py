"""ESAD: `method` has the equations and the parameters, `loss` the loss, `views` what the networks see of a row."""

from esad.methods.esad.method import ESAD

__all__ = ["ESAD"]
