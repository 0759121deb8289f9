"""How good predictions are beyond accuracy: where classes are uneven, and how sure they may be."""

from typing import Any

import numpy as np
from torch import Tensor

BINS = 10


def metrics_of(y: Tensor, probabilities: Tensor, names: list[str]) -> dict[str, Any]:
    """Of the predictions for some nodes, by scikit-learn.

    ``auc`` is None unless every class has a node; of more than two classes it is the mean over
    each against the others. ``calibration_error`` is the mean gap between the probability of the
    predicted class and how often it is right, in ten bins. Rows of ``confusion`` are the known
    classes, columns the predicted ones.

    Shapes:
        y [M], probabilities [M, C]
    """
    from sklearn.metrics import confusion_matrix, f1_score, recall_score, roc_auc_score

    known, p = y.cpu().numpy(), probabilities.double().cpu().numpy()
    p = p / p.sum(1, keepdims=True)
    classes, present, predicted = np.arange(p.shape[1]), np.unique(known), p.argmax(1)
    auc = None
    if len(present) == len(classes) > 1:
        scores = p[:, 1] if len(classes) == 2 else p
        auc = float(roc_auc_score(known, scores, multi_class="ovr", labels=classes))
    f1 = f1_score(known, predicted, average="macro", zero_division=0)
    recall = recall_score(known, predicted, labels=present, average="macro", zero_division=0)
    return {
        "nodes": len(known),
        "accuracy": float((known == predicted).mean()),
        "balanced_accuracy": float(recall),
        "f1_macro": float(f1),
        "auc": auc,
        "calibration_error": _calibration_error(p.max(1), known == predicted),
        "classes": names,
        "confusion": confusion_matrix(known, predicted, labels=classes).tolist(),
    }


def _calibration_error(sure: np.ndarray, right: np.ndarray) -> float:
    """``sum_b |mean sure - mean right| n_b / M``: [M], [M]."""
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gap = np.bincount(bins, sure - right, BINS)
    return float(np.abs(gap).sum() / len(sure))
