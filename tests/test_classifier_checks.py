"""Scikit-learn's own checks of an estimator, with those that cannot pass and why."""

import pytest
import sklearn
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

from graphglow.sklearn_api import GlowClassifier

ROWS = (
    "fits rows of features, [n, D] of floats; a sample here is a node of the graph that the "
    "classifier was built with, and X holds its index"
)
SAME_WITH_NODES = "; test_classifier.py checks the same with node indices"
EXPECTED = {
    "check_array_api_input": ROWS,  # skipped where SCIPY_ARRAY_API is not set
    "check_classifier_data_not_an_array": ROWS + SAME_WITH_NODES,
    "check_classifiers_classes": ROWS + SAME_WITH_NODES,
    "check_classifiers_train": ROWS + SAME_WITH_NODES,
    "check_dict_unchanged": ROWS + SAME_WITH_NODES,
    "check_dont_overwrite_parameters": ROWS,
    "check_dtype_object": ROWS,
    "check_estimators_dtypes": ROWS,
    "check_estimators_fit_returns_self": ROWS + SAME_WITH_NODES,
    "check_estimators_nan_inf": ROWS,
    "check_estimators_overwrite_params": ROWS + SAME_WITH_NODES,
    "check_estimators_pickle": ROWS + SAME_WITH_NODES,
    "check_f_contiguous_array_estimator": ROWS,
    "check_fit2d_1feature": ROWS + SAME_WITH_NODES,
    "check_fit2d_predict1d": ROWS,
    "check_fit_check_is_fitted": ROWS + SAME_WITH_NODES,
    "check_fit_idempotent": ROWS + SAME_WITH_NODES,
    "check_fit_score_takes_y": ROWS + SAME_WITH_NODES,
    "check_methods_sample_order_invariance": ROWS + SAME_WITH_NODES,
    "check_methods_subset_invariance": ROWS + SAME_WITH_NODES,
    "check_n_features_in": ROWS + SAME_WITH_NODES,
    "check_n_features_in_after_fitting": ROWS,
    "check_pipeline_consistency": ROWS,
    "check_positive_only_tag_during_fit": ROWS,
    "check_readonly_memmap_input": ROWS,
    "check_supervised_y_2d": ROWS + SAME_WITH_NODES,
}


if parse_version(sklearn.__version__) < parse_version("1.6"):
    pytest.skip("expected_failed_checks are of scikit-learn 1.6", allow_module_level=True)


@parametrize_with_checks(
    [GlowClassifier(graph="synthetic-small", device="cpu")],
    expected_failed_checks=lambda _: EXPECTED,
)
def test_scikit_learns_own_check(estimator, check):
    check(estimator)
