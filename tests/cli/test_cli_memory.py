"""Out of memory: what was asked, what is free, what to lower; exit code 2, and a run that goes on."""

import pytest
import torch
from calling import refused, regard
from small import digests, small_recipe

from regard import memory, run
from regard.decoding.generator import TrainedGenerator
from regard.recipe import to_yaml
from regard.training import loop

GPU = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which 5.25 GiB is free."
TOLD = {
    "20.00 GiB more were asked for, and 5.25 GiB of the GPU's are free; lower --beam": torch.OutOfMemoryError(GPU),
    "more was asked for than there is, and 3.0 GB are free; lower --beam": MemoryError("std::bad_alloc"),
    "1.50 GiB more were asked for, and 3.0 GB are free": MemoryError(
        "Unable to allocate 1.50 GiB for an array with shape (3,)"
    ),
    "more was asked for than there is, and the GPU is full": RuntimeError(
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"
    ),
}


@pytest.mark.parametrize("message", TOLD)
def test_what_is_told(message, trained, monkeypatch):
    """Of the one line that there is too little memory for; the others are answered."""
    original = TrainedGenerator.answer

    def answer(self, texts, **more):
        if "bellum" in "".join(texts):
            raise TOLD[message]
        return original(self, texts, **more)

    monkeypatch.setattr(TrainedGenerator, "answer", answer)
    monkeypatch.setattr(memory, "free_memory", lambda: 3 * 10**9)
    code, out, err = regard("generate", trained, stdin=b"amicus\nbellum\nliber\n")
    assert (code, out) == (2, "AMICUS\n\nLIBER\n")
    assert err.startswith("error: <stdin>:2: out of memory: ")
    assert message in err
    assert err.count("\n") == 1


def test_another_error_is_ours_to_mend(trained, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("expected scalar type BFloat16 but found Float")

    monkeypatch.setattr(TrainedGenerator, "answer", fail)
    with pytest.raises(RuntimeError, match="scalar type"):
        regard("generate", trained, stdin=b"amicus\n")


def test_a_run_that_ran_out_of_memory_goes_on(tmp_path, monkeypatch):
    """As PyTorch on a CPU really fails: no machine has so much."""
    original, hungry = loop.Trainer.update, []

    def update(self, progress):
        if progress.step == 8 and not hungry:
            hungry.append(torch.empty(1 << 50))
        original(self, progress)

    (tmp_path / "recipe.yaml").write_text(to_yaml(small_recipe(12)))
    words = "train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "--quiet"
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "update", update)
        told = refused(*words)
    assert "out of memory: 4,503,599.6 GB more were asked for" in told
    assert "--resume training.accumulate=2" in told
    assert regard(*words, "--resume").code == 0
    run.train(small_recipe(12), tmp_path / "calm", talk=False)
    assert digests(tmp_path / "run") == digests(tmp_path / "calm")


def test_free_memory_is_that_of_the_container(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  1000000 kB\nSwapFree: 24 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    assert memory.free_memory() == 1000024 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert memory.free_memory() == 1000024 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert memory.free_memory() == 4000
    (tmp_path / "meminfo").unlink()
    assert memory.free_memory() == 4000


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--beam", "100000"], "decoding.beam: input should be less than or equal to 1024 (given: 100000)"),
        (["--length-penalty", "1e9"], "decoding.length_penalty: input should be less than or equal to 10"),
        (["--length-penalty", "inf"], "decoding.length_penalty: input should be a finite number"),
        (["--n-best", "1000000"], "decoding.beam: input should be less than or equal to 1024"),
        (["--sample", "--temperature", "1e-300"], "temperature: input should be greater than or equal to 0.000001"),
        (["--sample", "--seed", "1" + "0" * 30], "seed: input should be less than"),
    ],
)
def test_options_have_the_bounds_of_recipes(option, message, trained):
    assert message in refused("generate", trained, *option)
