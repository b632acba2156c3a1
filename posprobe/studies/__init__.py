"""The entry functions of the product, one file each, with the record that each returns."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
