"""Whether a metric is to be small or large.

An explicit word wins. Otherwise whole words of the metric's name decide, never parts of words:
`answer_accuracy` contains "wer", `soccer_map` contains "cer". A name without a known word is an
error, because a search in the wrong direction costs as much as one in the right direction.
"""

from __future__ import annotations

import re

from tao_sdk.errors import ValidationError

__all__ = ["DIRECTIONS", "direction_of"]

DIRECTIONS = ("minimize", "maximize")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SMALL = _words(
    "loss error err latency runtime duration time cost flops macs params memory energy power size"
    " wer cer ter eer fid kid lpips mae mse rmse rmsle mape epe perplexity ppl nll bpd distance"
    " regret fpr fnr far frr"
)
_LARGE = _words(
    "accuracy acc precision recall f1 fscore map ap ap50 ap75 map50 auc auroc auprc roc iou miou"
    " dice score psnr ssim bleu rouge meteor cider throughput fps hit mrr ndcg nds pq sq rq kappa"
    " reward return sensitivity specificity tpr tnr top1 top5 r2 gain quality success"
)
_SPELLINGS = {"minimise": "minimize", "min": "minimize", "maximise": "maximize", "max": "maximize"}
_WORD = re.compile(r"[a-z]+[0-9]*|[0-9]+")
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")


def direction_of(metric: str, direction: str | None = None) -> str:
    """`minimize` or `maximize`; raises where neither the setting nor the name tells."""
    if direction:
        word = str(direction).lower()
        word = _SPELLINGS.get(word, word)
        if word not in DIRECTIONS:
            raise ValidationError(
                f"automl_settings: direction must be minimize or maximize, not {direction!r}"
            )
        return word
    words = _WORD.findall(_CAPITALS.sub(" ", metric).lower())
    # The last known word is what is measured: `accuracy_error`, `map_loss`.
    for word in reversed(words):
        if word in _SMALL:
            return "minimize"
        if word in _LARGE:
            return "maximize"
    raise ValidationError(
        f"automl_settings: the metric {metric!r} does not say whether less or more of it is "
        'better: set direction to "minimize" or "maximize"'
    )
