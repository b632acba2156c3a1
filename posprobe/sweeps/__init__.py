"""Many references at once, on joblib or Dask: ``sweep.parquet`` and what is made of it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
