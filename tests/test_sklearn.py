"""scikit-learn's own check suite over the registry, and its tools around our detectors."""

import inspect
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from support import methods, tiny

from esad import ESAD, LabelAwareSplit, ap_scorer, auc_scorer, registry

# These checks pass class numbers as y, which our label contract refuses; nothing else may fail.
LABEL_CHECKS = {
    "check_classifier_data_not_an_array",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_predict1d",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
}


class FoldedLabels:
    """Folds y by its sign, so that only the label contract is out of the way; gives labels where they are needed."""

    def fit(self, X, y=None, **kwargs):
        folded = None if y is None else np.sign(np.asarray(y, dtype=float))
        shape = X.shape if scipy.sparse.issparse(X) else np.asarray(X).shape
        if self.labels_needed and len(shape) == 2:
            folded = np.zeros(shape[0]) if folded is None else folded
            folded[:2] = -1
        return super().fit(X, folded, **kwargs)


def folded(name):
    """A subclass of the method with folded labels, at module level so that it can be pickled."""
    base = registry.method(name)
    folded_class = type(f"Folded{base.__name__}", (FoldedLabels, base), {"__module__": __name__})
    globals()[folded_class.__name__] = folded_class
    # where labels are needed, two rows like all others stand in for anomalies: only a share asked for makes alarms sure
    return tiny(name, base=folded_class, contamination=0.1 if base.labels_needed else "auto")


def run_checks(detector, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check_estimator(
            detector, on_fail=None, on_skip=None, expected_failed_checks=dict.fromkeys(expected, "label contract")
        )


@pytest.mark.parametrize("name", ["esad", "bagged_trees"])  # labels are checked in one place; the test below is for all
def test_only_the_label_checks_fail(name):
    if registry.method(name).labels_needed:  # these checks come without labels as well
        failed = [r for r in run_checks(tiny(name), ()) if r["status"] == "failed"]
    else:
        results = run_checks(tiny(name), LABEL_CHECKS)
        assert [r["check_name"] for r in results if r["status"] == "failed"] == []
        failed = [r for r in results if r["status"] == "xfail"]
        assert {r["check_name"] for r in failed} == LABEL_CHECKS
    for result in failed:
        said = f"{result['exception']!r}{result['exception']}{result['exception'].__cause__!r}"
        assert any(words in said for words in ("LabelError", "`y` must hold", "needs one at least")), said


@pytest.mark.parametrize("name", methods())
def test_all_checks_pass_once_labels_are_folded(name):
    results = run_checks(folded(name), ())
    assert [(r["check_name"], str(r["exception"])) for r in results if r["status"] == "failed"] == []
    assert len([r for r in results if r["status"] == "passed"]) >= 45


@pytest.mark.parametrize("name", registry.method_names())
def test_every_argument_is_described_once(name):
    method = registry.method(name)
    section = method.__doc__.partition("----------\n")[2].partition("\n\n")[0]
    heads = [line.partition(" : ")[0] for line in section.splitlines() if line[:1].strip()]
    assert sorted(", ".join(heads).split(", ")) == sorted(inspect.signature(method).parameters)


@pytest.mark.parametrize("name", methods())
def test_clone_keeps_the_parameters_and_not_the_state(name, rows):
    detector = tiny(name).fit(*rows)
    copy = clone(detector)
    assert copy.get_params() == detector.get_params()
    assert not hasattr(copy, "offset_")


@pytest.mark.parametrize("name", methods())
def test_pipelines_and_searches_take_every_method(name, rows):
    X, y = rows
    split = LabelAwareSplit(2, random_state=0)
    pipeline = make_pipeline(StandardScaler(), tiny(name)).fit(X, y)
    assert set(pipeline.predict(X)) <= {-1, 1}
    assert np.isfinite(cross_val_score(pipeline, X, y, cv=split, scoring=auc_scorer, error_score="raise")).all()
    grid = {"random_state": [0, 1]}
    search = GridSearchCV(tiny(name), grid, cv=split, scoring=ap_scorer, error_score="raise").fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score_samples(X).shape == (100,)


def test_cross_val_score_never_loses_every_labelled_anomaly(rows):
    X, y = rows
    y = np.where(np.cumsum(y == -1) > 2, 0, y)  # two labelled anomalies only
    scores = cross_val_score(tiny("esad"), X, y, cv=LabelAwareSplit(4, random_state=1), scoring=auc_scorer)
    assert np.isfinite(scores).all()


def test_parameters_are_stored_untouched():
    hidden = [16, 8]
    assert ESAD(hidden=hidden).hidden is hidden
