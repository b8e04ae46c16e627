"""Modules that a verb imports are not searched for garbage; all else is. In processes of their own, without torch."""

import subprocess
import sys

import pytest

BEGIN = """
import gc, sys, weakref
from contextlib import suppress
from regard.cli.lasting import lasting
assert "torch" not in sys.modules

class Own:
    pass

def round():
    own = Own()
    own.self = own
    return weakref.ref(own)
"""
CASES = {
    "no search while modules are imported": """
with lasting():
    assert not gc.isenabled()
assert gc.isenabled() and gc.get_freeze_count() > 1_000
""",
    "an import that fails": """
with suppress(ImportError), lasting():
    raise ImportError
assert gc.isenabled()
""",
    "what is made later": """
with lasting():
    before = round()
after = round()
gc.collect()
assert after() is None and before() is not None
""",
    "torch is there already": """
sys.modules["torch"] = sys
with lasting():
    assert gc.isenabled()
assert gc.get_freeze_count() == 0
""",
    "a program that searches for itself": """
gc.disable()
with lasting():
    pass
assert not gc.isenabled() and gc.get_freeze_count() == 0
""",
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_searched(case):
    subprocess.run([sys.executable, "-c", BEGIN + CASES[case]], check=True)
