"""What holds for every test: the same numbers in any order, nothing drawn at import, the process left as it was."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side; results do not depend on it, times do

import hashlib
import random
import zlib

import hypothesis
import numpy as np
import pytest
import rich.style  # noqa: F401  it draws a number at import: before anybody watches
import torch

torch.set_num_threads(1)
torch.backends.cudnn.allow_tf32 = False  # as regard.models.device.choose_device does
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)  # the same examples at every run; no timing
hypothesis.settings.load_profile("same")


def pytest_addoption(parser):
    # our own: ten lines against one more dependency to pin, and the order is a function of the seed and the names alone
    parser.addoption("--shuffle", metavar="SEED", help="run modules, and the tests of each, in an order drawn from SEED")


def pytest_collection_modifyitems(config, items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
    if seed := config.getoption("shuffle"):  # a module stays together, or its fixtures would be made anew for each test
        items.sort(key=lambda item: [digest(seed, name) for name in (item.nodeid.partition("::")[0], item.nodeid)])


def digest(seed, name):
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def seed_all(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def random_states():
    """Enough of each generator to see that something was drawn."""
    numpy = np.random.get_state()
    states = torch.get_rng_state().numpy().tobytes(), (numpy[1].tobytes(), *numpy[2:]), random.getstate()
    return dict(zip(("torch", "numpy", "random"), states, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A number drawn at import depends on what was imported before; a fixture's, or a test's own, does not."""
    seed_all(1)
    before = random_states()
    report = yield
    own = {"random"} if collector.config.getoption("jaxtyping_packages", None) else set()  # beartype draws for each signature
    drawn = [name for name, state in random_states().items() if state != before[name] and name not in own]
    if drawn and report.passed:
        seed_all(1)  # or the folder would be blamed too
        where = collector.nodeid or "tests"
        report.outcome = "failed"
        report.longrepr = f"{where}: random numbers of {', '.join(drawn)} are drawn or seeded at import; do it in a fixture"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call():
    seed_all(0)  # whatever the fixtures drew, and whether they were made now or for an earlier test


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """A seed of its own for every fixture: numbers depend neither on who asks for it first nor on what is made before it."""
    states = np.random.get_state(), random.getstate()
    with torch.random.fork_rng():
        seed_all(zlib.crc32(f"{fixturedef.baseid} {fixturedef.argname} {request.param_index}".encode()))
        try:
            return (yield)
        finally:
            np.random.set_state(states[0])
            random.setstate(states[1])


# pytest, torch and others set some of these for themselves when they are first used
THEIRS = ("PYTEST_", "TORCH", "_TORCH", "PYTORCH", "TRITON", "CUDA", "CUBLAS", "DISABLE_CUPTI", "TEARDOWN_CUPTI", "KMP_", "MPL")


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(THEIRS)}


def restore_environment(values):
    for name in environment().keys() - values.keys():
        del os.environ[name]
    os.environ.update(values)


# what the whole process shares: how it is read, how it is put back
SHARED = {
    "torch.get_num_threads()": (torch.get_num_threads, torch.set_num_threads),
    "torch.get_default_dtype()": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "torch.is_grad_enabled()": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the precision of float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cudnn.allow_tf32": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda value: setattr(torch.backends.cudnn, "allow_tf32", value),
    ),
    "the working directory": (os.getcwd, os.chdir),
    "the environment": (environment, restore_environment),
}
AT_FIRST = pytest.StashKey()


def pytest_sessionstart(session):
    session.config.stash[AT_FIRST] = {name: read() for name, (read, _) in SHARED.items()}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """A test that leaves the process otherwise than it found it fails, and the next one finds it as it was."""
    try:
        return (yield)
    finally:
        changed = []
        for name, (read, put_back) in SHARED.items():
            if (now := read()) != (before := item.config.stash[AT_FIRST][name]):
                put_back(before)
                changed.append(f"{name} {difference(before, now)}")
        if changed:
            pytest.fail(f"{item.nodeid} changes what all tests share: " + "; ".join(changed), pytrace=False)


def difference(before, now):
    if isinstance(before, dict):
        return f"in {sorted(dict(before.items() ^ now.items()))}"
    return f"from {before} to {now}"
