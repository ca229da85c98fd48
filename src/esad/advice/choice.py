"""Chooses a method where the user names none."""

from collections.abc import Collection

from esad import registry
from esad.core import processes
from esad.labels import LabelCounts

__all__ = ["choose_method"]


def choose_method(kind: str, counts: LabelCounts, *, parameters: Collection[str] = ()) -> tuple[str, str]:
    """The method with the best mean ranking in benchmarks/tables.py on such data, and the reason in a sentence.

    That is the committee or ESAD. Without a labelled anomaly the committee is ESAD alone. It is taken all the same, so
    that trees join as soon as a refit knows one.

    Parameters
    ----------
    kind : {"table", "images"}
    counts : LabelCounts
        Of the training rows.
    parameters : collection of str
        Names of parameters that the method must have, because somebody has set them.

    Examples
    --------
    >>> choose_method("table", LabelCounts(n_anomaly=5, n_unlabelled=900, n_normal=0))[0]
    'committee'
    >>> choose_method("images", LabelCounts(n_anomaly=5, n_unlabelled=900, n_normal=0))
    ('esad', 'Trees cannot see pictures.')
    """
    if kind == "images":
        return "esad", "Trees cannot see pictures."
    if not processes.current().is_alone:
        return "esad", "Several processes cannot grow trees together."
    missing = sorted(set(parameters) - set(registry.method("committee")().get_params()))
    if missing:
        return "esad", f"The committee has no parameter {missing[0]!r}."
    if not counts.n_anomaly:
        return "committee", "Without a labelled anomaly ESAD judges alone; trees join it once one is known."
    return "committee", "ESAD and trees together rank tables with labelled anomalies better than ESAD alone."
