"""More pieces: old outputs stay, new rows are means, and what is tied stays tied."""

from __future__ import annotations

import torch

from osbert.models.adapting.additions import add_pieces, draw_pieces
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead


def test_new_rows_are_means_and_nothing_else_changes(make_backbone, make_batch) -> None:
    backbone = make_backbone().eval()
    size = backbone.architecture.vocabulary
    head = MaskedLanguageHead(backbone)
    torch.nn.init.normal_(head.bias)
    learner = Learner(backbone, {"mlm": head, "nsp": SequenceHead(backbone, target="nsp", form="nsp")})
    rows, bias = backbone.embeddings.pieces.weight.detach().clone(), head.bias.detach().clone()
    batch = make_batch([5, 3])
    before = backbone(batch).hidden
    scores = head.scores(before)
    add_pieces(learner, [[6, 7, 7], [9]])
    after = backbone.embeddings.pieces.weight
    assert backbone.architecture.vocabulary == len(after) == size + 2
    torch.testing.assert_close(after[:size], rows)
    torch.testing.assert_close(after[size], (rows[6] + 2 * rows[7]) / 3)
    torch.testing.assert_close(after[size + 1], rows[9])
    torch.testing.assert_close(head.bias[size:], torch.stack([(bias[6] + 2 * bias[7]) / 3, bias[9]]))
    torch.testing.assert_close(backbone(batch).hidden, before)
    torch.testing.assert_close(head.scores(before)[:, :size], scores)
    plain = Learner(make_backbone(piece_transform=False), {})
    plain.heads["mlm"] = MaskedLanguageHead(plain.backbone)
    add_pieces(plain, [[6]])
    assert plain.heads["mlm"].scores(before).shape == (8, size + 1)
    names = [name for name, _ in learner.named_parameters()]
    assert len(names) == len(set(names)) == len(list(learner.parameters()))
    head.scores(before)[:, -1].sum().backward()
    assert after.grad is not None and after.grad[-1].any()


def test_drawn_rows_come_behind_the_old_ones_or_in_place_of_spare_ones(make_backbone) -> None:
    learner = Learner(make_backbone(tied=False), {})
    head = learner.heads["mlm"] = MaskedLanguageHead(learner.backbone)
    torch.nn.init.normal_(head.bias)
    size = learner.backbone.architecture.vocabulary
    tables = [(learner.backbone.embeddings.pieces, "weight"), (head.table, "weight"), (head, "bias")]
    before = [getattr(*table).detach().clone() for table in tables]
    draw_pieces(learner, size - 1, 3)  # the last row is of no piece
    assert learner.backbone.architecture.vocabulary == size + 2
    for old, table in zip(before, tables, strict=True):
        rows = getattr(*table)
        assert isinstance(rows, torch.nn.Parameter) and len(rows) == size + 2
        torch.testing.assert_close(rows[: size - 1], old[:-1])
        assert not rows[size - 1 :].any() if rows.ndim == 1 else rows[size - 1 :].all()
