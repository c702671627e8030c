"""The public names of the library, and those of the book's package that a reader calls: found, not listed."""

import inspect
import pkgutil
from importlib import import_module

import ssmbook

BOOK = tuple(f"headsandstates.{name}" for name in ("exercises", "experiments", "lab", "sliders"))
SUBPACKAGES = [name for name in ssmbook.__all__ if name not in ("System", "__version__")]
FOLDERS = (*(f"ssmbook.{name}" for name in SUBPACKAGES), "ssmbook.scans.distributed", *BOOK)


def public_names(module):
    """The names a module offers: ``__all__``, else what it defines itself without a leading underscore."""
    own = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
    return list(getattr(module, "__all__", None) or sorted(name for name in own if name[0] != "_"))


def public_modules(folder):
    """The subpackage; if it offers nothing itself, the modules in it."""
    package = import_module(folder)
    if public_names(package):
        return [package]
    names = sorted(entry.name for entry in pkgutil.iter_modules(package.__path__) if entry.name[0] != "_")
    return [import_module(f"{package.__name__}.{name}") for name in names]


def everything(folders=FOLDERS):
    """{full name: value} of every public name."""
    modules = [module for folder in folders for module in public_modules(folder)]
    return {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in modules
        for name in public_names(module)
    }


def kind(value):
    """The word in autodoc's directive for a value."""
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if inspect.isroutine(value) else "data"
