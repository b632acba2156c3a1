"""Show what a trained transformer has learned about position.

`load` reads a position table out of a checkpoint, the analyses measure it, `analyze` does all of
them and `Analysis.save` writes the bundle. Everything is imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
# Importable, but no part of the documented interface.
__all__.remove("__version__")
