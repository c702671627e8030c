"""One sentence on what to install, where something that draws is missing: loaded before the rest."""

from importlib.util import find_spec

_PACKAGES = {"matplotlib": "matplotlib", "PIL": "pillow", "ipywidgets": "ipywidgets", "IPython": "ipython"}
_MISSING = [package for module, package in _PACKAGES.items() if find_spec(module) is None]

if _MISSING:
    raise ModuleNotFoundError(
        f"ssmbook.display needs packages that are not installed: pip install {' '.join(_MISSING)}"
    )
