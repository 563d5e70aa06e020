"""Several annotators: alpha and Dawid and Skene's model equal published packages, and what few votes give."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from osbert_lab.annotation import annotators
from osbert_lab.annotation.annotators import DawidSkene, krippendorff_alpha

VOTES = [
    {name: label for name, label in zip("abc", labels) if label != "."}
    for labels in ["xyx", "xxy", "yyx", "yxy", "xx.", "zzx", "zyz", "x.z", "yyx", "zxx", "zxz", "y.y", "xxz"]
]
POSTERIORS = np.array(
    [
        [0.509561558379, 0.339066486163, 0.151371955459],
        [0.876387578619, 0.123612421366, 0],
        [0.040893983789, 0.959106016202, 0],
        [0.167462932672, 0.832537067328, 0],
        [0.810092327941, 0.063636631936, 0.126271040123],
        [0.054775518675, 0, 0.945224481319],
        [0.195308853108, 0.002693784665, 0.801997362227],
        [0.730592310691, 0.006994589481, 0.262413099828],
        [0.040893983789, 0.959106016202, 0],
        [0.351608963003, 0.021576886386, 0.626814150611],
        [0.291641776181, 0.000708402515, 0.707649821305],
        [0.088801466155, 0.911198533845, 0],
        [0.804142577795, 0.003730028941, 0.192127393264],
    ]
)
"""Of crowd-kit 1.4.1: DawidSkene(n_iter=2)."""


def test_alpha_is_that_of_the_package_krippendorff() -> None:
    assert krippendorff_alpha(VOTES) == pytest.approx(0.08114558472553701, abs=1e-12)  # krippendorff 0.8.1
    assert krippendorff_alpha([{"a": "x", "b": "x"}, {"a": "y", "b": "y"}]) == 1
    assert krippendorff_alpha([{"a": "x", "b": "y"}, {"a": "y", "b": "x"}]) == pytest.approx(-0.5)
    assert math.isnan(krippendorff_alpha([{"a": "x"}])) and math.isnan(krippendorff_alpha([{"a": "x", "b": "x"}]))
    rng = np.random.default_rng(0)
    many = [{"a": f"{first}", "b": f"{second}"} for first, second in rng.integers(0, 1000, (2000, 2))]
    tracemalloc.start()
    krippendorff_alpha(many)
    assert tracemalloc.get_traced_memory()[1] < 4e6  # rows times labels would be 16 MB
    tracemalloc.stop()


def test_the_posteriors_are_crowd_kits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotators, "STEPS", 2)
    model = DawidSkene.fit(VOTES, prior_votes=0)
    np.testing.assert_allclose(model.probabilities, POSTERIORS, atol=1e-9)
    assert [row.get("z", 0) for row in model.posteriors] == pytest.approx(POSTERIORS[:, 2], abs=1e-9)


def test_an_expert_outweighs_two_who_often_guess() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["neg", "pos"], 400)
    guesses = np.where(rng.random((400, 2)) < 0.4, truth[:, None], rng.choice(["neg", "pos"], (400, 2)))
    votes = [
        {"expert": true, "first": one, "second": other} if row else {"first": "neg", "second": "pos"}
        for row, (true, (one, other)) in enumerate(zip(truth.tolist(), guesses.tolist()))
    ]
    model = DawidSkene.fit(votes)
    labels = [max(row, key=row.__getitem__) for row in model.posteriors]
    assert np.mean(np.array(labels)[1:] == truth[1:]) > 0.97
    head, *rows = model.table()
    assert len(head) == 4 and [row[:2] for row in rows] == [["first", "400"], ["second", "400"], ["expert", "399"]]
    assert float(rows[2][2]) > 0.9 > 0.75 > float(rows[0][2])
    assert "expert 0.9" in model.describe() and "alpha 0." in model.describe()


def test_few_votes_make_no_label_certain() -> None:
    posteriors = DawidSkene.fit([{"a": "x", "b": "y", "c": "y"}, {"a": "x", "b": "x", "c": "y"}]).posteriors
    assert all(0.5 < max(row.values()) < 0.95 for row in posteriors)
