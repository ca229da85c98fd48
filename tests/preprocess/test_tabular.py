"""Tables become finite float32 features, the same way every time."""

import numpy as np

from esad.data.frame import Table
from esad.preprocess.tabular import TabularPreprocessor


def test_numbers_are_standardised_by_the_reference_rows():
    values = np.random.default_rng(0).normal(5.0, 3.0, size=(100, 2))
    values[90:] = 1e300
    reference = np.arange(100) < 90
    features = TabularPreprocessor().fit(Table.from_any(values), reference).transform(Table.from_any(values))
    np.testing.assert_allclose(features[:90].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(features[:90].std(axis=0), 1.0, atol=1e-6)
    assert (features[90:] == 10.0).all()


def test_state_gives_the_same_bits_back():
    table = Table.from_any([[1.0, "a"], [None, "b"], [7.0, None]])
    fitted = TabularPreprocessor().fit(table)
    again = TabularPreprocessor.from_state(*fitted.state())
    assert again.transform(table).tobytes() == fitted.transform(table).tobytes()
