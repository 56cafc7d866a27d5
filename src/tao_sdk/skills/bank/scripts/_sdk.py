"""Finds the installed SDK, which does the work of the scripts in this folder."""

# Any Python 3 can read this file, so that an interpreter without the SDK, or one that is too old
# for it, gets a sentence instead of a traceback.
import sys
from importlib import import_module
from pathlib import Path


def scripts(module="tao_sdk.skills.scripts"):
    """The module that has a function for the script."""
    try:
        return import_module(module)
    except ImportError as error:
        if _add_surrounding_package():
            return import_module(module)
        sys.exit(_missing(error))
    except SyntaxError:
        sys.exit(_missing("it needs Python 3.10 or newer"))


def _add_surrounding_package():
    """Whether this folder lies in a package that the interpreter just does not have on its path."""
    here = Path(__file__).resolve()
    source = here.parents[4]
    is_packaged = here == source / "tao_sdk" / "skills" / "bank" / "scripts" / "_sdk.py"
    if is_packaged and str(source) not in sys.path and sys.version_info >= (3, 10):
        sys.path.insert(0, str(source))
        return True
    return False


def _missing(reason):
    return (
        "{0}: {1} cannot use tao-sdk ({2}): run `{1} -m pip install tao-sdk`, or "
        "`tao-sdk bank install` again from where it is installed"
    ).format(Path(sys.argv[0]).name, sys.executable or "this Python", reason)
