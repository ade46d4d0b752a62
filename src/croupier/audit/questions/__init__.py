"""The questions of an audit: whoever imports this folder imports all of its files, whose questions then have names."""

import pkgutil
from importlib import import_module

# A question is known by its name as soon as its file lies here: nobody keeps a list.
for _found in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
