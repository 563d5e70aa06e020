"""Memory that runs out halves the passes and changes nothing else."""

from __future__ import annotations

import errno
import gc
import platform
import weakref

import pytest
import torch

from osbert.training import memory
from osbert.training.probe import resident_memory
from osbert.training.processor import keep_memory
from osbert.training.trainer import Trainer
from refusals import refusal

CPU = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"


def narrow(trainer: Trainer, tokens: int, error: Exception) -> list[int]:
    """Let the learner fail with an error, in the middle of a pass, on more tokens; return the sizes of its passes."""
    sizes = []
    forward = trainer.learner.forward

    def limited(batch):
        outcomes = forward(batch)
        if batch.tokens > tokens:
            raise error
        sizes.append(batch.tokens)
        return outcomes

    trainer.learner.forward = limited
    return sizes


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError(CPU), MemoryError()], ids=lambda e: type(e)
)
def test_the_step_is_taken_again_in_halves_with_the_same_gradient(toys, tmp_path, error) -> None:
    whole = toys.trainer(tmp_path / "a", dropout=0.0, steps=6, loader=toys.MergedLoader())
    halved = toys.trainer(tmp_path / "b", dropout=0.0, steps=6, loader=toys.MergedLoader())
    sizes = narrow(halved, 25, error)
    for one, other in zip(whole.run(), halved.run(), strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-6)
        assert one.accuracies == pytest.approx(other.accuracies)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-5)
        assert (one.tokens, one.skipped) == (other.tokens, other.skipped)
    for name, weight in whole.learner.named_parameters():
        torch.testing.assert_close(weight, halved.learner.get_parameter(name), rtol=1e-5, atol=1e-6)
    assert max(sizes) <= 25
    assert halved.counters.halvings >= 1
    notices = [notice for notice in halved.notices if "Memory ran out at step" in notice]
    assert len(notices) == halved.counters.halvings
    assert "(no memory left)" in notices[0] or str(error) in notices[0]


def test_what_was_learnt_of_the_memory_is_kept_with_the_checkpoint(toys, tmp_path) -> None:
    """Dropout goes by pass: a run that is resumed must take the same passes to end in the same bits."""
    whole = toys.trainer(tmp_path / "a", steps=8, loader=toys.MergedLoader())
    narrow(whole, 20, MemoryError())
    list(whole.run())
    cut = toys.trainer(tmp_path / "b", steps=8, loader=toys.MergedLoader())
    narrow(cut, 20, MemoryError())
    for progress in cut.run():
        if progress.step == 5:
            break
    again = toys.trainer(tmp_path / "b", steps=8, loader=toys.MergedLoader())
    assert again.resume()
    assert again.counters.halvings == cut.counters.halvings >= 1
    list(again.run())
    assert all(
        torch.equal(weight, again.learner.get_parameter(name)) for name, weight in whole.learner.named_parameters()
    )
    assert not again.notices


def test_a_single_sequence_that_is_too_much_ends_the_run_after_a_checkpoint(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, steps=8)
    with refusal("out-of-memory"):
        for progress in trainer.run():
            if progress.step == 3:
                narrow(trainer, 1, torch.OutOfMemoryError("CUDA out of memory."))
    assert trainer.checkpoints.steps() == [3]


def test_other_errors_pass(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path)
    narrow(trainer, 1, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        next(trainer.run())
    assert trainer.counters.halvings == 0


def test_an_optimiser_that_lacks_memory_says_so(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, checkpoint_every=2)
    step = trainer.optimizer.step

    def limited() -> None:
        if trainer.step == 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        step()

    trainer.optimizer.step = limited
    with refusal("out-of-memory"):
        list(trainer.run())
    assert trainer.checkpoints.steps() == [2]


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")], ids=repr)
def test_a_loader_that_lacks_memory_says_so_and_costs_no_step(toys, tmp_path, error) -> None:
    trainer = toys.trainer(tmp_path, loader=toys.FailingLoader(error))
    with refusal("out-of-memory", "--data.pool"):
        list(trainer.run())
    assert trainer.checkpoints.steps() == [3]


def test_evaluation_is_halved_too_and_stays_in_its_mode(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path)
    (batch,) = next(toys.MergedLoader().steps(trainer.cursor)).batches
    wanted = trainer.evaluate([batch])
    narrow(trainer, 20, MemoryError())
    found = trainer.evaluate([batch])
    for name, mean in wanted.items():
        assert found[name].loss == pytest.approx(mean.loss, rel=1e-6)
        assert found[name].accuracy == pytest.approx(mean.accuracy)


def test_the_tensors_of_the_failed_pass_are_gone_before_it_is_repeated(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, loader=toys.MergedLoader())
    held: list[weakref.ref] = []
    alive: list[bool] = []
    forward = trainer.learner.forward

    def limited(batch):
        if held:
            alive.append(held[0]() is not None)
            return forward(batch)
        large = torch.ones(100)
        held.append(weakref.ref(large))
        raise MemoryError

    trainer.learner.forward = limited
    gc.disable()
    try:
        next(trainer.run())
    finally:
        gc.enable()
    assert alive[0] is False


def test_the_random_numbers_of_others_are_left_alone(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path, loader=toys.MergedLoader())
    narrow(trainer, 20, MemoryError())
    before = torch.get_rng_state()
    next(trainer.run())
    assert torch.equal(before, torch.get_rng_state())


def test_what_is_a_lack_of_memory() -> None:
    assert memory.ran_out(RuntimeError(CPU))
    assert memory.ran_out(RuntimeError("cuDNN error: out of memory"))
    assert memory.ran_out(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert memory.ran_out(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert memory.ran_out(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not memory.ran_out(OSError(errno.ENOSPC, "No space left on device"))
    assert not memory.ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not memory.ran_out(ValueError("out of memory"))
    assert memory.ran_out(RuntimeError("could not create a primitive"))
    assert not memory.ran_out(RuntimeError("could not create a primitive descriptor for a matmul"))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns freed memory on demand")
def test_released_memory_goes_back_to_the_system() -> None:
    keep_memory()
    before = resident_memory()
    kept = [torch.ones(2**18) for _ in range(200)]
    assert resident_memory() > before + 150 * 2**20
    del kept
    memory.release()
    assert resident_memory() < before + 50 * 2**20
