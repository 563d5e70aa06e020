"""Tasks whose head stands on an encoder, or on features of a frozen one, as with ELMo and CoVe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from osbert.models.forms import Features
from osbert.tasks.contract import Task

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


@dataclass(frozen=True, kw_only=True)
class FeatureTask(Task):
    """A task with a head on the encoder, or on an LSTM on features of it."""

    features: Features = "none"  # type: ignore[misc]  # here it is a setting
    """Train no encoder, but a bidirectional LSTM on these of its layers, whose vectors are kept on disk (section 5.3);
    mix is ELMo's. Give it a learning rate near 1e-3."""

    def head_on_features(self, backbone: Backbone) -> Head:
        """Return the task's head on the features of a backbone, which is frozen."""
        from osbert.models.heads.features import stand_on_features

        return stand_on_features(backbone, self.features, replace(self, features="none").head)
