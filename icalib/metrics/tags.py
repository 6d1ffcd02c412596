"""The metrics' tags: the same in learning curves, TensorBoard and reports."""

from __future__ import annotations

_GROUPS = {
    "rank": ("R@1", "R@2", "R@5", "MAP"),
    "class": ("F1", "P", "R", "F1@0.5", "P@0.5", "R@0.5", "F1_argmax", "threshold"),
    "cal": ("ECE", "ECE_adaptive", "ECE_top1", "MCE", "MCE@30", "NLL", "Brier", "Brier_skill", "gap", "mean_prob"),
    "sel": ("AURC", "E_AURC", "risk@80", "coverage@5", "AUROC"),
}
_TAGS = {metric: f"{group}/{metric}" for group, metrics in _GROUPS.items() for metric in metrics}


def metric_tag(metric: str) -> str:
    """The tag of a metric, the same during training and at the end.

    Example:
        >>> metric_tag("R@1"), metric_tag("ECE@platt"), metric_tag("num_pools")
        ('rank/R@1', 'cal/ECE@platt', 'data/num_pools')
    """
    if metric in _TAGS:
        return _TAGS[metric]
    name, at, calibrator = metric.partition("@")
    return f"{_TAGS.get(name, f'data/{name}')}{at}{calibrator}"
