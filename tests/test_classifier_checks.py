"""Scikit-learn's own checks of an estimator, on rows of tables."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from graphglow.sklearn_api import GlowClassifier

EXPECTED = {
    "check_methods_sample_order_invariance": "in single precision sums round by their order (1e-8)",
    "check_classifiers_classes": "-1 is an unknown label, as in sklearn.semi_supervised",
}


@parametrize_with_checks([GlowClassifier(device="cpu")], expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learns_own_check(estimator, check):
    check(estimator)
