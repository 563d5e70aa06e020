"""The loop against its definition: large batches, plain arithmetic, and a run that was never stopped."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from osbert.errors import UserError
from osbert.training import checkpoint as checkpoint_module
from osbert.training.optimizer import OptimizerSettings
from osbert.training.settings import TrainingSettings
from osbert.training.tracking import Metrics
from osbert.training.trainer import Trainer
from refusals import refusal


def finish(trainer: Trainer) -> list:
    return list(trainer.run())


def test_accumulated_micro_batches_equal_the_large_batch(toys, tmp_path) -> None:
    small = toys.trainer(tmp_path / "a", dropout=0.0, steps=5)
    large = toys.trainer(tmp_path / "b", dropout=0.0, steps=5, loader=toys.MergedLoader())
    for one, other in zip(small.run(), large.run(), strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-6)
        assert one.accuracies == pytest.approx(other.accuracies)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-5)
        assert one.tokens == other.tokens
    for name, weight in small.learner.named_parameters():
        torch.testing.assert_close(weight, large.learner.get_parameter(name), rtol=1e-5, atol=1e-6)


def test_one_step_is_adamw_on_the_mean_losses(toys, tmp_path) -> None:
    """Independently: the sum of the objectives' (weighted) means, clipped, into torch's unfused AdamW."""
    settings = {"learning_rate": 0.01, "warmup": 0.0, "clip": 0.05, "weight_decay": 0.1, "schedule": "constant"}
    trainer = toys.trainer(tmp_path, dropout=0.0, steps=2, optimizer=settings)
    reference = toys.Learner(0.0)
    matrices = [weight for weight in reference.parameters() if weight.ndim == 2]
    vectors = [weight for weight in reference.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6, fused=False, foreach=False)
    loader = toys.MergedLoader().steps(trainer.cursor)
    for progress in trainer.run():
        (batch,) = next(loader).batches
        losses = {name: loss.total / loss.count for name, loss in reference(batch).items()}
        optimizer.zero_grad()
        sum(losses.values()).backward()
        norm = math.sqrt(sum(float(weight.grad.double().square().sum()) for weight in reference.parameters()))
        for weight in reference.parameters():
            weight.grad *= 0.05 / norm
        optimizer.step()
        assert progress.gradient_norm == pytest.approx(norm, rel=1e-5)
        assert progress.losses == pytest.approx({name: loss.item() for name, loss in losses.items()}, rel=1e-5)
    for name, weight in trainer.learner.named_parameters():
        torch.testing.assert_close(weight, reference.get_parameter(name), rtol=1e-5, atol=1e-6)


def test_weights_are_of_the_means(toys, tmp_path) -> None:
    """The loss and its gradient are 0.5 mean(word) + 3 mean(side), however many labels each has; the log keeps both."""
    weights = {"word": 0.5, "side": 3.0}

    class Weighted(toys.Learner):
        def forward(self, batch):
            return {name: replace(loss, weight=weights[name]) for name, loss in super().forward(batch).items()}

    trainer = toys.trainer(tmp_path, learner=Weighted(0.0), steps=1, optimizer={"clip": 0.0})
    reference = toys.Learner(0.0)
    (batch,) = next(toys.MergedLoader().steps(trainer.cursor)).batches
    losses = {name: loss.total / loss.count for name, loss in reference(batch).items()}
    total = sum(weights[name] * loss for name, loss in losses.items())
    total.backward()
    norm = math.sqrt(sum(float(weight.grad.double().square().sum()) for weight in reference.parameters()))
    before = trainer.evaluate([batch])
    (progress,) = trainer.run()
    assert progress.gradient_norm == pytest.approx(norm, rel=1e-5)
    assert progress.loss == pytest.approx(total.item(), rel=1e-5)
    assert progress.losses == pytest.approx({name: loss.item() for name, loss in losses.items()}, rel=1e-5)
    metrics = Metrics(tmp_path, every=1, memory={})
    line = metrics.step(progress)
    assert (line["loss"], line["side.loss"]) == (progress.loss, progress.losses["side"])
    assert metrics.record_held_out(0, before)["held_out.loss"] == pytest.approx(total.item(), rel=1e-5)


def test_the_loss_goes_down(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, steps=60, optimizer={"learning_rate": 0.05})
    held_out = [toys.batch(np.random.default_rng(step), 4, 0) for step in range(3)]
    before = trainer.evaluate(held_out)
    losses = [progress.loss for progress in finish(trainer)]
    after = trainer.evaluate(held_out)
    assert after["word"].loss < before["word"].loss
    assert after["word"].accuracy > before["word"].accuracy
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert set(before) == set(after) == {"word", "side"}
    assert trainer.learner.training


@pytest.mark.parametrize("stop", [1, 4, 7, 9])
def test_a_resumed_run_ends_in_the_same_bits(toys, tmp_path, stop) -> None:
    whole = toys.trainer(tmp_path / "whole")
    expected = {progress.step: progress.losses for progress in whole.run()}
    first = toys.trainer(tmp_path / "cut")
    for progress in first.run():
        first.memory["last"] = progress.step
        if progress.step == stop:
            first.save()
            break
    torch.manual_seed(12345)  # a resumed run must not lean on the global random numbers
    second = toys.trainer(tmp_path / "cut", learner=toys.Learner())
    assert second.resume()
    assert second.step == stop
    assert second.memory == {"last": stop}
    assert second.notices == []
    rest = {progress.step: progress.losses for progress in second.run()}
    assert rest == {step: losses for step, losses in expected.items() if step > stop}
    assert toys.same(whole.learner, second.learner)
    assert second.counters.tokens == whole.counters.tokens


def test_nothing_to_resume(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path)
    assert not trainer.resume()
    assert trainer.step == 0


def test_training_leaves_the_global_random_numbers_alone(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path)
    before = torch.random.get_rng_state()
    finish(trainer)
    assert torch.equal(before, torch.random.get_rng_state())


def test_dropout_differs_between_steps_and_micro_batches_and_follows_the_seed(toys, tmp_path) -> None:
    one, two, other = (toys.trainer(tmp_path / str(n), dropout=0.5, seed=seed) for n, seed in enumerate((0, 0, 1)))
    assert [p.losses for p in one.run()] == [p.losses for p in two.run()]
    assert not toys.same(one.learner, other.learner)
    finish(other)
    assert not toys.same(one.learner, other.learner)


def test_a_step_that_is_not_finite_is_skipped_and_counted(toys, tmp_path) -> None:
    clean, poisoned = toys.Learner(), toys.Learner()
    poisoned.poison = {3, 4, 7}
    trainer = toys.trainer(tmp_path, learner=poisoned)
    before = {}
    for progress in trainer.run():
        assert progress.skipped == (progress.step - 1 in poisoned.poison)
        now = {name: weight.detach().clone() for name, weight in poisoned.named_parameters()}
        if progress.skipped:
            assert math.isnan(progress.loss)
            assert all(torch.equal(now[name], before[name]) for name in now)
        before = now
    assert progress.skipped_steps == 3
    assert all(torch.isfinite(weight).all() for weight in poisoned.parameters())
    assert not toys.same(clean, poisoned)


def test_an_infinite_gradient_is_skipped_too(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, steps=2)
    trainer.learner.word.weight.register_hook(lambda gradient: gradient * float("inf"))
    skipped = [progress.skipped for progress in trainer.run()]
    assert skipped == [True, True]
    assert all(torch.isfinite(weight).all() for weight in trainer.learner.parameters())


def test_three_in_a_row_stop_with_the_batch_saved(toys, tmp_path) -> None:
    learner = toys.Learner()
    learner.poison = {5, 6, 7}
    trainer = toys.trainer(tmp_path, learner=learner)
    with refusal("training-diverged", "3", "8", "failed-step-8.npz"):
        finish(trainer)
    with np.load(tmp_path / "failed-step-8.npz") as file:
        saved = dict(file)
    expected = next(toys.Loader().steps(trainer.cursor)).batches
    for number, batch in enumerate(expected):
        assert np.array_equal(saved[f"{number}.ids"], batch.ids)
        assert saved[f"{number}.lengths"].tolist() == list(batch.lengths)
        assert np.array_equal(saved[f"{number}.side.weights"], batch.targets["side"].weights)
    assert all(torch.isfinite(weight).all() for weight in learner.parameters())
    resumed = toys.trainer(tmp_path)
    assert resumed.resume()
    assert resumed.step == 4


def test_bad_steps_in_a_row_are_counted_across_a_resumption(toys, tmp_path) -> None:
    learner = toys.Learner()
    learner.poison = {2, 3, 4}
    trainer = toys.trainer(tmp_path, learner=learner)
    assert [progress.skipped for _, progress in zip(range(4), trainer.run())] == [False, False, True, True]
    trainer.save()
    again = toys.trainer(tmp_path, learner=learner)
    again.resume()
    with refusal("training-diverged", "5"):
        finish(again)


def test_an_objective_without_labels_in_a_step_is_left_out(toys, tmp_path) -> None:
    class OneSided(toys.Loader):
        def steps(self, cursor):
            for step in super().steps(cursor):
                if step.cursor.index % 2:
                    for batch in step.batches:
                        batch.targets.pop("side")
                yield step

    trainer = toys.trainer(tmp_path, loader=OneSided())
    for progress in trainer.run():
        assert set(progress.losses) == ({"word"} if progress.step % 2 else {"word", "side"})
        assert not progress.skipped


def test_loading_time_is_measured(toys, tmp_path, monkeypatch) -> None:
    """A clock that ticks once a look: loading is one tick of each step, the rest is work."""
    ticks = iter(range(10_000))
    monkeypatch.setattr("osbert.training.trainer.time.perf_counter", lambda: float(next(ticks)))
    last = finish(toys.trainer(tmp_path, checkpoint_every=0))[-1]
    assert last.loader_seconds == 10.0
    assert last.seconds == 20.0


def test_checkpoints_appear_when_due_and_at_the_end(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, keep=10)
    for progress in trainer.run():
        assert trainer.checkpoints.steps() == [step for step in (4, 8) if step < progress.step]
    assert trainer.checkpoints.steps() == [4, 8, 10]


def test_weights_that_are_not_finite_are_never_written(toys, tmp_path) -> None:
    """The last step's own update can make them so, before any loss tells of it."""
    trainer = toys.trainer(tmp_path, steps=4, checkpoint_every=2)
    for progress in trainer.run():
        if progress.step == 4:
            trainer.learner.word.bias.data[3] = float("inf")
    assert not trainer.sound
    assert trainer.checkpoints.steps() == [2]
    (notice,) = trainer.notices
    assert "step 4" in notice


def test_no_checkpoints_when_none_are_asked_for(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, checkpoint_every=0)
    finish(trainer)
    assert trainer.checkpoints.steps() == []


def test_training_goes_on_when_the_disk_is_full(toys, tmp_path, monkeypatch) -> None:
    trainer = toys.trainer(tmp_path)
    write = checkpoint_module.save_file

    def full(tensors, path) -> None:
        if "step-4" not in str(path):
            path.write_bytes(b"half of it")
            raise OSError(28, "No space left on device")
        write(tensors, path)

    monkeypatch.setattr(checkpoint_module, "save_file", full)
    finish(trainer)
    assert trainer.finished
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["step-4"]
    assert len(trainer.notices) == 2
    for notice, step in zip(trainer.notices, (8, 10)):
        assert f"step {step}" in notice
        assert "the one of step 4 is kept" in notice
        assert "the disk is full" in notice


def test_a_change_of_threads_is_told(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, steps=4)
    finish(trainer)
    path = tmp_path / "checkpoints" / "step-4"
    state = json.loads((path / "state.json").read_text())
    state["circumstances"]["threads"] += 1
    (path / "state.json").write_text(json.dumps(state))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["state.json"] = checkpoint_module._facts(path / "state.json")
    (path / "manifest.json").write_text(json.dumps(manifest))
    again = toys.trainer(tmp_path)
    assert again.resume()
    (notice,) = again.notices
    assert "threads" in notice
    assert "last bits" in notice


def test_what_the_last_bits_depend_on_is_kept_with_a_checkpoint(toys, tmp_path) -> None:
    finish(toys.trainer(tmp_path, steps=4))
    state = json.loads((tmp_path / "checkpoints" / "step-4" / "state.json").read_text())
    found = state["circumstances"]
    assert (found["numpy"], found["torch"], found["compile"]) == (np.__version__, torch.__version__, False)
    assert found["model"] and found["model"] == toys.trainer(tmp_path).processor.model


def test_a_checkpoint_of_another_model_is_refused(toys, tmp_path) -> None:
    finish(toys.trainer(tmp_path, steps=4))
    with refusal("damaged-file"):
        Trainer(torch.nn.Linear(2, 2), toys.Loader(), OptimizerSettings(), TrainingSettings(), tmp_path).resume()


def test_bf16_trains_and_its_weights_stay_float32(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, precision="bf16")
    plain = toys.trainer(tmp_path / "plain")
    bf16, fp32 = finish(trainer), finish(plain)
    assert bf16[0].losses != fp32[0].losses
    assert bf16[0].losses == pytest.approx(fp32[0].losses, rel=0.02)
    assert all(weight.dtype == torch.float32 for weight in trainer.learner.parameters())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("seed", -1),
        ("seed", 2**63),
        ("log_every", 0),
        ("keep", 0),
        ("checkpoint_every", -1),
        ("evaluate_every", -1),
    ],
)
def test_impossible_settings_are_refused(name, value) -> None:
    with pytest.raises(ValueError, match=name):
        TrainingSettings(**{name: value})


@pytest.mark.parametrize("error", [UserError("a shard has gone"), OSError("no such file")])
def test_data_that_can_no_longer_be_read_costs_no_step(toys, tmp_path, error) -> None:
    trainer = toys.trainer(tmp_path / "cut", loader=toys.FailingLoader(error))
    with pytest.raises(type(error), match=str(error)):
        finish(trainer)
    again = toys.trainer(tmp_path / "cut")
    assert again.resume()
    assert again.step == 3
    finish(again)
    whole = toys.trainer(tmp_path / "whole")
    finish(whole)
    assert toys.same(again.learner, whole.learner)
