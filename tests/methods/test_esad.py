"""ESAD's own arguments: what is refused, what each switch does, the published recipe."""

import inspect
import shutil

import numpy as np
import pytest

from esad import ESAD
from esad.errors import InputError
from esad.methods.esad.recipe import Recipe


def tiny(**changes):
    return ESAD(**{"n_members": 2, "n_epochs": 3, "hidden": (8,), "latent": 2, "random_state": 0} | changes)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"phi": "rotate"}, "`phi` must be one of both, noise, permute"),
        ({"restore": "grey"}, "`restore` must be one of none"),
        ({"network": "conv"}, "`network` must be one of auto, mlp"),
        ({"augment": 2}, "`augment` is for pictures"),
        ({"shift": 1}, "`shift` is for pictures"),
        ({"flip": True}, "`flip` is for pictures"),
        ({"optimizer": "lbfgs"}, "`optimizer`"),
        ({"n_members": 0}, "`n_members`"),
        ({"n_epochs": 2.5}, "`n_epochs`"),
        ({"lr": -1}, "`lr`"),
        ({"lambda_norm": -1}, "`lambda_norm`"),
        ({"hidden": (8, 0)}, "`hidden` must be a list of whole numbers"),
        ({"hidden": 64}, "`hidden`"),
        ({"hidden": "wide"}, "`hidden`"),
        ({"latent": 0}, "`latent`"),
        ({"input_noise": -0.1}, "`input_noise`"),
        ({"input_noise": "lots"}, "`input_noise`"),
        ({"noise": "auto"}, "`noise`"),
        ({"early_stopping": "yes"}, "`early_stopping`"),
        ({"random_state": "a"}, "`random_state`"),
        ({"contamination": 0.9}, "contamination"),
        ({"contamination": "lots"}, "contamination"),
        ({"contamination": None}, "contamination"),
        ({"device": "abacus"}, "`device`"),
        ({"recipe": "mine"}, "`recipe`"),
        ({"precision": "float8"}, "`precision`"),
        ({"scaling": "log"}, "`scaling`"),
        ({"combine": "max"}, "`combine`"),
        ({"reduction": "median"}, "`reduction`"),
    ],
)
def test_wrong_parameters_are_named(parameters, says, rows):
    with pytest.raises(InputError, match=says):
        tiny(**parameters).fit(*rows)


def test_whole_numbers_of_any_size_stand_for_their_floats(rows):
    whole, real = (tiny(clip=size, lambda_norm=size).fit(*rows) for size in (10**25, 1e25))
    np.testing.assert_array_equal(whole.anomaly_score(rows[0]), real.anomaly_score(rows[0]))
    plain = whole.recipe_.to_json()
    plain["loss"]["norm_offset"] = -(10**25)
    assert type(Recipe.from_json(plain).loss.norm_offset) is float
    plain["loss"]["norm_offset"] = 10**400
    with pytest.raises(InputError, match="'norm_offset' must be a number"):
        Recipe.from_json(plain)


def test_every_argument_is_declared_once_and_described():
    names = list(inspect.signature(ESAD).parameters)
    described = ESAD.__doc__.partition("----------\n")[2].partition("\nAttributes\n")[0]
    assert [line.partition(" :")[0] for line in described.splitlines() if line[:1].strip()] == names
    assert "Auto: 1.5 for tables, 1.0 for pictures. As published: 1.0." in " ".join(described.split())


def test_the_recipe_of_other_data_can_be_asked_for(rows):
    assert ESAD.defaults("images")["lambda_assist"] == 0.3
    assert [ESAD().n_leaving_out(kind) for kind in ("table", "images")] == [5, 1]
    assert ESAD(n_members=3).n_leaving_out("table") == 3
    assert ESAD.as_published().n_leaving_out("table") == 0
    assert tiny().recipe_for((4,), rows[1]) == tiny().fit(*rows).recipe_


def test_ablation_switches_change_the_model(rows):
    X, y = rows
    default = tiny().fit(X, y)
    for switch in ({"second_encoder": False}, {"lambda_assist": 0.0}, {"phi": "none"}, {"phi": "noise"}):
        assert not np.array_equal(tiny(**switch).fit(X, y).anomaly_score(X), default.anomaly_score(X))
    assert "assist" not in tiny(lambda_assist=0.0).fit(X, y).loss_curves_


@pytest.mark.parametrize("combine", ["scaled", "sum"])
def test_lambda_norm_weighs_the_norm_in_the_score(rows, combine):
    X, y = rows
    found = {value: tiny(lambda_norm=value, combine=combine).fit(X, y) for value in (0, 0.5, 3)}
    assert not found[0].score_terms(X)["norm"].any()
    np.testing.assert_allclose(found[0].anomaly_score(X), found[0].score_terms(X)["reconstruction"])
    if combine == "scaled":
        assert [detector.recipe_.loss.norm_weight for detector in found.values()] == [0, 1, 6]
        assert tiny(norm_weight=4).fit(X, y).recipe_.loss.norm_weight == 4


def test_as_published_is_the_papers_recipe(rows):
    detector = ESAD.as_published(n_epochs=4, random_state=0).fit(*rows)
    assert np.isfinite(detector.training_scores_).all()  # every row is trained on, none is held out
    settings = detector.recipe_.settings
    assert (settings.optimizer, settings.lr, settings.batch_size, settings.schedule) == ("sgd", 0.1, 32, "halving")
    assert ESAD.as_published().n_epochs == 200
    assert settings.halve_every == settings.n_steps // 4
    terms = detector.score_terms(rows[0])
    assert (terms["reconstruction"] >= 0).all()
    assert (terms["norm"] >= 0).all()
    reasons = detector.explain(rows[0][:3])
    np.testing.assert_allclose(reasons.base["norm"] + reasons.shares["norm"].sum(1), terms["norm"][:3], rtol=1e-4)


def test_early_stopping_keeps_the_best_weights_and_needs_labels(rows):
    X, y = rows
    detector = tiny(early_stopping=True, n_epochs=40).fit(X, y)
    assert np.isfinite(detector.anomaly_score(X)).all()
    with pytest.warns(UserWarning, match="early_stopping needs"):
        tiny(early_stopping=True).fit(X)


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++")
def test_compiled_networks_train_as_others_do(rows):
    X, y = rows
    settings = {"n_members": 1, "hidden": (4,), "latent": 2, "n_epochs": 2, "precision": "float64"}
    plain, compiled = (tiny(compiled=compiled, **settings).fit(X, y).anomaly_score(X) for compiled in (False, True))
    np.testing.assert_allclose(compiled, plain, rtol=1e-6)


def test_float64_and_bfloat16_train(rows):
    X, y = rows
    for precision in ("float64", "bfloat16"):
        assert np.isfinite(tiny(precision=precision).fit(X, y).anomaly_score(X)).all()
